"""Tenants and projects as an operator makes them."""

from tenants.access.default_tiers import ensure_default_tiers
from tenants.models import Project, Tenant, Tier


def make_project(tenant: str, tier: str) -> Project:
    ensure_default_tiers()
    record = Tenant.objects.create(name=tenant, tier=Tier.objects.get(name=tier))
    return Project.objects.create(tenant=record, name="default")
