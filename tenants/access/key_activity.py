"""What gateways report of keys, moved from Redis into PostgreSQL: last uses, and digests under a
new pepper. What is lost on the way is reported again with the next use."""

from datetime import UTC, datetime
from typing import Final, cast

import structlog
from django.db import connection

from gpu_workers.protocol import keys
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tenants.policy_redis import policy_redis

log = structlog.get_logger(__name__)

_DIGEST_BYTES: Final = 32
_LATEST_MS: Final = 253_402_300_799_000  # the end of the year 9999


def collect_key_uses() -> int:
    """Copy the last uses of keys from Redis; return for how many keys they are news."""
    reported = _drain(keys.policy_key_uses())
    uses = {key: at for key, text in reported.items() if (at := _moment(text)) is not None}
    if not uses:
        return 0
    # A plain statement, not the manager's: the last use is no change of the policy.
    with operator_scope("key uses"), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tenants_apikey SET last_used_at = reported.at"
            " FROM unnest(%s::text[], %s::timestamptz[]) AS reported (public_id, at)"
            " WHERE tenants_apikey.public_id = reported.public_id"
            " AND (last_used_at IS NULL OR last_used_at < reported.at)",
            [list(uses), list(uses.values())],
        )
        updated: int = cursor.rowcount
    return updated


def adopt_new_digests() -> int:
    """Move keys that proved themselves under an earlier pepper to the current one; returns how
    many. One that was rotated meanwhile stays as it is."""
    reported = _drain(keys.policy_new_digests())
    if not reported:
        return 0
    moved = []
    with operator_scope("new pepper"):
        for record in ApiKey.objects.filter(public_id__in=reported).select_for_update():
            earlier, current = _halves(reported[record.public_id])
            if bytes(record.secret_digest) == earlier and len(current) == _DIGEST_BYTES:
                record.secret_digest = current
                moved.append(record)
        ApiKey.objects.bulk_update(moved, ["secret_digest"], batch_size=1000)
    log.info("api_keys_moved_to_the_new_pepper", count=len(moved))
    return len(moved)


def _drain(key: str) -> dict[str, bytes]:
    """Read and empty a hash in one transaction, so that nothing written in between is lost."""
    with policy_redis().pipeline(transaction=True) as pipeline:
        pipeline.hgetall(key)
        pipeline.delete(key)
        found = cast(dict[bytes, bytes], pipeline.execute()[0])
    return {field.decode(errors="replace"): value for field, value in found.items()}


def _moment(text: bytes) -> datetime | None:
    if not text.isdigit() or int(text) > _LATEST_MS:
        return None
    return datetime.fromtimestamp(int(text) / 1000, UTC)


def _halves(value: bytes) -> tuple[bytes, bytes]:
    return value[:_DIGEST_BYTES], value[_DIGEST_BYTES:]
