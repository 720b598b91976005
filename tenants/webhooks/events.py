"""Telling a tenant that something happened: the one function that the rest of the code calls.

The event is a row of the transaction in which it happened; webhooks and e-mails are made of it
afterwards (`deliveries`, `emails`).
"""

import json
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from tenants.webhooks.event_types import EventType
from tenants.webhooks.models import Event

# The specification asks for less than 20 kB; ours name what happened and hold little more.
MAX_DATA_BYTES: Final = 16 * 1024


class InvalidEvent(ValueError):
    """An event cannot be published as it is; `field` is its wrong part."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def publish(
    tenant_id: uuid.UUID,
    type: EventType | str,  # noqa: A002 - the specification's word
    data: Mapping[str, Any],
    *,
    key: str,
    occurred_at: datetime | None = None,
) -> None:
    """Tell the tenant, once for each `key` of this type; calling it again changes nothing.

    Call it inside a scope that may write for this tenant: what is published in a transaction that
    is undone was never published. `data` is JSON (UUIDs, times and decimals become text) and must
    not hold prompts, secrets or names of people. Raises `InvalidEvent` for a type that is not in
    `EventType`, a key of none or more than 200 characters, and data of more than 16 KiB.
    """
    try:
        kind = EventType(type)
    except ValueError as error:
        raise InvalidEvent("type", str(error)) from None
    if not 0 < len(key) <= 200:
        raise InvalidEvent("key", f"an event's key has 1 to 200 characters, got {len(key)}")
    size = len(json.dumps(dict(data), cls=DjangoJSONEncoder).encode())
    if size > MAX_DATA_BYTES:
        raise InvalidEvent(
            "data", f"an event's data has at most {MAX_DATA_BYTES} bytes, got {size}"
        )
    event = Event(
        tenant_id=tenant_id,
        type=kind.value,
        key=key,
        data=dict(data),
        occurred_at=occurred_at or timezone.now(),
    )
    Event.objects.bulk_create([event], ignore_conflicts=True)
