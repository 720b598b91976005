"""Operators' pages for people, tenants, keys, tiers, quotas and the audit log."""

from tenants.admin import api_keys, audit, limits, people, policy, sign_on, tenants

__all__ = ["api_keys", "audit", "limits", "people", "policy", "sign_on", "tenants"]
