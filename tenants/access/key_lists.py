"""Lists of API keys, filtered as their pages ask for. Call these inside the tenant's scope."""

import uuid
from datetime import datetime
from enum import StrEnum
from typing import Final

from django.db.models import Q, QuerySet
from django.utils import timezone

from tenants import key_format
from tenants.models import ApiKey, User
from tenants.pagination import NEWEST_FIRST, Order, Page, page

KEYS_ORDER: Final = Order(name="api keys", fields=NEWEST_FIRST, is_descending=True)


class KeyState(StrEnum):
    """What becomes of a request with the key. One that was revoked is revoked, whenever it would
    have expired."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


def state_of(key: ApiKey, now: datetime | None = None) -> KeyState:
    if key.is_revoked:
        return KeyState.REVOKED
    has_expired = key.expires_at is not None and key.expires_at <= (now or timezone.now())
    return KeyState.EXPIRED if has_expired else KeyState.ACTIVE


def list_api_keys(
    *,
    limit: int,
    cursor: str | None = None,
    project_id: uuid.UUID | None = None,
    state: KeyState | None = None,
    created_by: uuid.UUID | None = None,
    search: str = "",
    with_playgrounds: bool = True,
    with_revoked: bool = True,
) -> Page[ApiKey]:
    """Return a page of the open scope's keys with project and creator, the newest first. `search`
    is a part of the name, or a key as it is shown masked. Raises `BadCursor`."""
    rows = ApiKey.objects.select_related("project", "created_by")
    if not with_playgrounds:
        rows = rows.filter(is_playground=False)
    if project_id is not None:
        rows = rows.filter(project_id=project_id)
    if state is not None:
        rows = rows.filter(has_state(state, timezone.now()))
    if not with_revoked:
        rows = rows.filter(revoked_at=None)
    if created_by is not None:
        rows = rows.filter(created_by_id=created_by)
    if search.strip():
        rows = rows.filter(_matches(search.strip()))
    return page(rows, KEYS_ORDER, limit=limit, cursor=cursor)


def key_creators() -> "QuerySet[User]":
    """Return everybody who made a key of the open scope, those who have left too."""
    made_by = ApiKey.objects.exclude(created_by=None).order_by().values("created_by")
    return User.objects.filter(id__in=made_by)


def has_state(state: KeyState, now: datetime) -> Q:
    """Match keys of which `state_of` returns it."""
    if state is KeyState.REVOKED:
        return Q(revoked_at__isnull=False)
    has_expired = Q(expires_at__isnull=False, expires_at__lte=now)
    return Q(revoked_at=None) & (has_expired if state is KeyState.EXPIRED else ~has_expired)


def _matches(search: str) -> Q:
    """Match a name, or the public id in whatever was pasted of a key."""
    shown = search.removeprefix(f"{key_format.PREFIX}-").partition("-")[0]
    by_id = Q(public_id=shown) if len(shown) == key_format.PUBLIC_ID_LENGTH else Q()
    return Q(name__icontains=search) | by_id
