"""Processes of the system, as tests look at them."""
