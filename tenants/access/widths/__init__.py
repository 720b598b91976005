"""Which key may do more than another, or than a member: one table, asked by every verb on keys."""
