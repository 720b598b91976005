"""Penstock beside vLLM's own server and beside AsyncLLM alone, on the real engine: `make bench`."""
