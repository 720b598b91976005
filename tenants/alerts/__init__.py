"""What a tenant is warned of by itself: quotas that fill up, balances that run low."""
