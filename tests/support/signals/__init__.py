"""Metrics and traces as others read them."""
