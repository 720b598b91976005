"""Making the environments: uv, what the machine must have, progress. Standard library only."""
