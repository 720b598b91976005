"""Usage by pool, for operators: what records sum up to without tenants, and what pools earn beside
what they cost."""
