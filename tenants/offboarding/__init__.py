"""The end of a tenant: what leaves with it, and what has to stay."""
