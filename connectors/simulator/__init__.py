"""Plants that serve Modbus TCP: two pumps with physics, and recordings."""
