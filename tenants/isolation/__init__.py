"""Whose rows the running code may touch, and who is behind what it changes: scopes, row-level
security, the roles in PostgreSQL, the actor of the audit log."""
