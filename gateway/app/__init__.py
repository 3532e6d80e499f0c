"""Composition root: wires concrete parts into a gateway."""
