"""Operators' pages for the price book and the ledger."""

from tenants.billing.admin import ledger, prices

__all__ = ["ledger", "prices"]
