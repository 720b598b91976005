"""Operators' pages for the price book, the ledger, invoices, payments and SLA credits."""

from tenants.billing.admin import invoices, ledger, payments, prices

__all__ = ["invoices", "ledger", "payments", "prices"]
