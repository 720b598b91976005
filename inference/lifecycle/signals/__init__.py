"""What a gateway tells of its requests: counters and traces."""
