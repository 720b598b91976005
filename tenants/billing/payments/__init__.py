"""Who collects, and what webhooks of payment providers may do."""
