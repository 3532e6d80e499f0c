"""How the box and the process are: memory, event-loop delay."""
