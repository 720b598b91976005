"""Billing: balance and transactions, invoices."""
