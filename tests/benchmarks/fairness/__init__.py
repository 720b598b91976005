"""Dispatch against other schedulers, in virtual time: `make bench-fairness`."""
