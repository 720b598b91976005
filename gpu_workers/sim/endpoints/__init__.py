"""One API, one file: what the simulated engine reads of its requests, and how it writes answers."""
