"""Modbus: reads tags from servers, writes prediction blocks to them."""
