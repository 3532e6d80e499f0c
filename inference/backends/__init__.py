"""Back ends: what runs a model."""
