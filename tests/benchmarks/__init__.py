"""Benchmarks: side by side in one run, medians and ratios; loopback only, not in the suite."""
