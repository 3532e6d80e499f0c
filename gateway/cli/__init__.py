"""The command line: one file per command or group, heavy imports inside the command."""
