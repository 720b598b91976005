"""Billed usage, and a Stripe on loopback."""
