"""Tenants, projects and keys as an operator makes them."""

from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.models import ApiKey, Project, Tenant, Tier


def make_project(tenant: str, tier: str) -> Project:
    ensure_default_tiers()
    record = Tenant.objects.create(name=tenant, tier=Tier.objects.get(name=tier))
    return Project.objects.create(tenant=record, name="default")


def make_key(tenant: str) -> ApiKey:
    """A new tenant's first key."""
    return issue_api_key(make_project(tenant, "premium")).record
