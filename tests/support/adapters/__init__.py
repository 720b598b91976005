"""Adapters on record, and what is said of them."""
