"""The model that comes with Lineside, for the demo and the sample configuration."""
