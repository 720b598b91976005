"""The requests that a worker holds, from their assignment to their finish."""
