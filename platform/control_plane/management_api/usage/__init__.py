"""What tenants used, by the report and by the request."""
