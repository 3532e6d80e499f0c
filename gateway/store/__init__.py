"""What stays on the disk: history in packed column blocks, the outbox, and the journal."""
