"""HTTP on a unix socket: snapshots and queries out, commands in."""
