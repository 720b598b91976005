"""Usage on the worker's own disk until PostgreSQL has it, and the engine's own count beside it."""
