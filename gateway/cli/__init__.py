"""Commands, one file per group; heavy imports stay inside the command."""
