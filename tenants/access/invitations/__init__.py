"""Invitations by e-mail: sending them from inside a tenant, and what the link in the e-mail does
for whoever holds it."""
