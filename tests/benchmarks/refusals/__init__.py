"""Refusals at scale."""
