"""The model workshop: trains, exports and judges. Needs the `workshop` extra; nothing in the service imports it."""
