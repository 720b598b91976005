"""Quotas as a tenant's people set them: at a project or at a key. The tenant's own are part of what
it has agreed with the operator. Call these inside the tenant's scope."""

import uuid
from collections.abc import Collection, Sequence
from typing import Final

from django.core.exceptions import ValidationError
from django.db.models import Q

from gpu_workers.protocol.policy import LimitName
from tenants.access.widths.budgets import is_bounded
from tenants.access.widths.rule import Principal, check_width
from tenants.errors import Conflict, NotPermitted
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Cap, Project, Quota, Tenant, check_cap
from tenants.pagination import BY_ID, Order, Page, page

QUOTAS_ORDER: Final = Order(name="quotas", fields=BY_ID)


def list_quotas(
    *,
    limit: int,
    cursor: str | None = None,
    limits: Collection[LimitName] | None = None,
    project_id: uuid.UUID | None = None,
    api_key_id: uuid.UUID | None = None,
) -> Page[Quota]:
    """Return a page of the quotas of the open scope's projects and keys, with both: of these
    limits, at this project and its keys, or at this key. Raises `BadCursor`."""
    rows = Quota.objects.exclude(project=None, api_key=None).select_related("project", "api_key")
    if limits is not None:
        rows = rows.filter(limit__in=[each.value for each in limits])
    if project_id is not None:
        rows = rows.filter(Q(project=project_id) | Q(api_key__project=project_id))
    if api_key_id is not None:
        rows = rows.filter(api_key_id=api_key_id)
    return page(rows, QUOTAS_ORDER, limit=limit, cursor=cursor)


def quotas_of_whole(tenant: Tenant) -> list[Quota]:
    """Return the quotas of the whole organisation, the operator's before those of members."""
    whole = tenant.quotas.filter(project=None, api_key=None)
    return list(whole.order_by("limit", "is_own"))


def save_quota(quota: Quota) -> None:
    """Store a quota as an operator sets it, new or changed. Raises `ValidationError`, and
    `CapReached` where the tier allows no more."""
    quota.full_clean()
    if quota._state.adding:
        check_cap(quota.tenant_id, Cap.QUOTAS)
    quota.save()


def add_quota(
    tenant: Tenant,
    *,
    limit: LimitName,
    value: int,
    is_hard: bool,
    project_id: uuid.UUID | None = None,
    api_key_id: uuid.UUID | None = None,
    alert_percents: Sequence[int] | None = None,
    by: Principal = None,
) -> Quota:
    """Create a quota of one of the tenant's projects or keys, or one of the whole tenant, beside
    what its operator has set. Raises `ValidationError`, also for a key that is wider than `by`, and
    `Conflict` if there is one for that limit; `CapReached` where the tier allows no more."""
    if project_id is not None and not Project.objects.filter(id=project_id).exists():
        raise ValidationError({"project_id": "There is no such project."})
    if api_key_id is not None:
        api_key = ApiKey.objects.filter(id=api_key_id).first()
        if api_key is None:
            raise ValidationError({"api_key_id": "There is no such API key."})
        check_width(api_key, by)
    quota = Quota(
        tenant=tenant,
        project_id=project_id,
        api_key_id=api_key_id,
        limit=limit.value,
        value=value,
        is_hard=is_hard,
        is_own=project_id is None and api_key_id is None,
    )
    if alert_percents is not None:
        quota.alert_percents = list(alert_percents)
    quota.full_clean(validate_constraints=False)
    place = Q(project=project_id) & Q(api_key=api_key_id)
    if Quota.objects.filter(place, limit=limit.value, is_own=quota.is_own).exists():
        raise Conflict(
            f"There is a quota of {limit.value} at this {quota.scope} already; change that one.",
            code="quota_exists",
            param="limit",
        )
    check_cap(tenant.id, Cap.QUOTAS)
    quota.save(force_insert=True)
    return quota


def change_quota(
    quota: Quota,
    *,
    value: int | None = None,
    is_hard: bool | None = None,
    alert_percents: Sequence[int] | None = None,
    by: Principal = None,
) -> Quota:
    """Change the quota's fields that are not None. Raises as `add_quota` does, and `NotPermitted`
    where `by` is a key with quotas and this one would allow more."""
    softens = is_hard is False and quota.is_hard
    _check_changeable(quota, by, loosens=softens or (value is not None and value > quota.value))
    if value is not None:
        quota.value = value
    if is_hard is not None:
        quota.is_hard = is_hard
    if alert_percents is not None:
        quota.alert_percents = list(alert_percents)
    quota.full_clean(validate_constraints=False)
    quota.save(update_fields=["value", "is_hard", "alert_percents"])
    return quota


def remove_quota(quota: Quota, *, by: Principal = None) -> None:
    """Delete the quota and its alerts. Raises as `change_quota` does."""
    _check_changeable(quota, by, loosens=True)
    delete_quota(quota)


def delete_quota(quota: Quota) -> None:
    """Delete a quota and its alerts, as an operator does."""
    # Alerts are not a tenant's to delete, but where their quota goes they go with it.
    with operator_scope("removal of a quota"):
        quota.delete()


def _check_changeable(quota: Quota, by: Principal, *, loosens: bool) -> None:
    if quota.scope == "tenant" and not quota.is_own:
        raise _operators_only()
    if quota.api_key is not None:
        check_width(quota.api_key, by)
    if loosens and quota.is_hard and isinstance(by, ApiKey) and is_bounded(by):
        raise NotPermitted(
            "A key with quotas of its own may lower quotas, and raise or remove none."
        )


def _operators_only() -> NotPermitted:
    return NotPermitted(
        "This quota of the whole organisation was set by the operator of the service; set one of "
        "your own beside it."
    )
