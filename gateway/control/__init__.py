"""The only way back to a machine: guard, audit, alarms, commands."""
