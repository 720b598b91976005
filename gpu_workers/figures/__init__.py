"""What a worker tells of itself beside its requests: how its engine does, and its GPUs."""
