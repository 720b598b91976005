"""The policy snapshot: PostgreSQL's keys, tiers and models, written to Redis for the gateways."""
