"""Resources and soft faults of the box: process memory, event-loop delay."""
