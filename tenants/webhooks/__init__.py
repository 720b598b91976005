"""What a tenant is told of: alerts by e-mail and by signed webhooks."""
