"""What the gateway tells of itself: logs and Prometheus metrics."""
