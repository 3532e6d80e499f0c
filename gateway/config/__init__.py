"""The configuration file: its schema, reading it with positions, checking it, and what is made of it."""
