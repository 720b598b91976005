"""Tenants by name, for tables that know them by id."""

from collections.abc import Iterable
from uuid import UUID

from tenants.models import Tenant


def tenant_names(tenant_ids: Iterable[str]) -> dict[str, str]:
    """Return the names of those that exist, by id, in the open scope. What Redis has may be no id
    at all."""
    ids = [each for each in map(_uuid, tenant_ids) if each is not None]
    found = Tenant.objects.filter(pk__in=ids).values_list("pk", "name")
    return {str(pk): name for pk, name in found}


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
