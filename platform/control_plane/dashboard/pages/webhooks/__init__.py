"""Webhooks: endpoints and what was sent to them."""
