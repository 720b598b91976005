"""Operators' pages for the price book and the ledger."""

from tenants.billing.admin import prices

__all__ = ["prices"]
