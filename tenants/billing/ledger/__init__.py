"""Every movement of a tenant's money: balanced transactions, chained and posted once."""
