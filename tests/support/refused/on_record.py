"""Refusals as gateways tell of them and as they stand on record."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from redis import Redis

from gpu_workers.protocol import codec, keys, stream_fields
from gpu_workers.protocol.refusals import RefusalBatch, RefusalCount, RefusalNotice
from inference.refusals.collecting import add_batches
from tenants.models import ApiKey

AT: Final = datetime(2026, 3, 1, 7, 30, tzinfo=UTC)


def of_key(key: ApiKey, at: datetime = AT, count: int = 1, **changes: Any) -> RefusalCount:
    fields: dict[str, Any] = {
        "tenant_id": str(key.tenant_id),
        "hour": int(at.timestamp()) // 3600,
        "project_id": str(key.project_id),
        "api_key_id": str(key.id),
        "model": "small",
        "code": "requests_per_minute_exceeded",
        "limit": "requests_per_minute",
        "scope": "key",
        "count": count,
    }
    return RefusalCount(**(fields | changes))


def notice_of(key: ApiKey, at: datetime = AT, **changes: Any) -> RefusalNotice:
    fields: dict[str, Any] = {
        "tenant_id": str(key.tenant_id),
        "at_ms": int(at.timestamp() * 1000),
        "request_id": str(uuid.UUID(int=7)),
        "project_id": str(key.project_id),
        "api_key_id": str(key.id),
        "model": "small",
        "code": "requests_per_minute_exceeded",
        "limit": "requests_per_minute",
        "scope": "key",
        "status": 429,
        "message": "This API key has reached its limit of 60 requests a minute.",
    }
    return RefusalNotice(**(fields | changes))


def a_batch(*told: RefusalCount | RefusalNotice, **changes: Any) -> RefusalBatch:
    fields: dict[str, Any] = {
        "process_id": str(uuid.uuid4()),
        "number": 1,
        "counts": [each for each in told if isinstance(each, RefusalCount)],
        "notices": [each for each in told if isinstance(each, RefusalNotice)],
    }
    return RefusalBatch(**(fields | changes))


def tell(redis: Redis, *batches: RefusalBatch) -> None:
    for batch in batches:
        redis.xadd(keys.refusals(), {stream_fields.REFUSALS_FIELD: codec.encode(batch)})


def refuse(*told: RefusalCount | RefusalNotice) -> None:
    """Put refusals on record, as of a gateway of their own."""
    add_batches([a_batch(*told)])


def later(**parts: int) -> datetime:
    return AT + timedelta(**parts)
