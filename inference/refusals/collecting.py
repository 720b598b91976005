"""What gateways tell of refusals, moved from Redis into PostgreSQL.

A batch is added in one transaction with its number, and deleted from Redis after that. Whatever is
read again, after a crash or by two at a time, has a number that is known and adds nothing.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

import structlog
from django.db import connection, models
from django.utils import timezone

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.codec import WireFormatError, decode_refusal_batch
from gpu_workers.protocol.refusals import (
    NEWEST,
    OTHER_MODELS,
    RefusalBatch,
    RefusalCount,
    RefusalNotice,
)
from inference.models.refusal import (
    NOBODY,
    DailyRefusals,
    NewestRefusal,
    RefusalReporter,
    RefusalRollup,
)
from inference.usage.recordset import as_json, recordset
from tenants.isolation.scoping import operator_scope
from tenants.offboarding.closing import hold_open
from tenants.policy_redis import policy_redis

log = structlog.get_logger(__name__)

_BATCHES_AT_ONCE: Final = 50
# Of one tenant, and one more for each reason.
ROWS_OF_AN_HOUR: Final = 5_000
# Longer than a gateway keeps a batch that Redis may have.
_FORGOTTEN_AFTER: Final = timedelta(days=31)
# A gateway's clock is Redis' own: what is further away is no hour of a refusal.
_LATEST_AHEAD: Final = timedelta(hours=1)
_REASON: Final = ("model", "code", "limit", "scope")
_OF_HOUR: Final = ("tenant_id", "hour", "project_id", "api_key_id", *_REASON)

_Entries = list[tuple[bytes, dict[bytes, bytes]]]


def collect_refusals() -> int:
    """Add what gateways have told, and delete it from Redis; return how many refusals that were."""
    redis, added = policy_redis(), 0
    while True:
        entries = cast(_Entries, redis.xrange(keys.refusals(), count=_BATCHES_AT_ONCE))
        if not entries:
            return added
        added += add_batches(_batches(entries))
        redis.xdel(keys.refusals(), *(stream_id for stream_id, _ in entries))


def add_batches(batches: Sequence[RefusalBatch], now: datetime | None = None) -> int:
    """Add those batches that were not added before, in one transaction; return how many refusals
    they count. What is of a tenant that is closed, or of none, is left out."""
    now = now or timezone.now()
    with operator_scope("count of refusals"):
        fresh = _fresh(batches, now)
        open_tenants = _open_tenants(fresh)
        counts = [
            row
            for batch in fresh
            for each in batch.counts
            if each.tenant_id in open_tenants and (row := _count_row(each, now)) is not None
        ]
        _add_counts(counts)
        _keep_newest(
            newest
            for batch in fresh
            for each in batch.notices
            if each.tenant_id in open_tenants and (newest := _newest_row(each)) is not None
        )
        return sum(count for _, count in counts)


def _batches(entries: _Entries) -> list[RefusalBatch]:
    """Return what can be read; what cannot would not tomorrow either."""
    found = []
    for stream_id, fields in entries:
        try:
            batch = decode_refusal_batch(fields.get(stream_fields.REFUSALS_FIELD.encode(), b""))
            uuid.UUID(batch.process_id)
        except (WireFormatError, ValueError) as error:
            log.error("refusals_unreadable", stream_id=stream_id.decode(), reason=str(error)[:200])
            continue
        found.append(batch)
    return found


def _fresh(batches: Sequence[RefusalBatch], now: datetime) -> list[RefusalBatch]:
    """Return the batches that were not added yet, and note that they are. Whoever else adds some of
    the same gateways waits here."""
    ids = sorted({uuid.UUID(batch.process_id) for batch in batches})
    RefusalReporter.objects.bulk_create(
        (RefusalReporter(process_id=each, number=0, seen_at=now) for each in ids),
        ignore_conflicts=True,
    )
    locked = RefusalReporter.objects.filter(pk__in=ids).order_by("pk").select_for_update()
    reporters = {str(each.process_id): each for each in locked}
    fresh = []
    for batch in batches:
        reporter = reporters[str(uuid.UUID(batch.process_id))]
        if batch.number > reporter.number:
            reporter.number, reporter.seen_at = batch.number, now
            fresh.append(batch)
    RefusalReporter.objects.bulk_update(reporters.values(), ["number", "seen_at"])
    RefusalReporter.objects.filter(seen_at__lt=now - _FORGOTTEN_AFTER).delete()
    return fresh


def _open_tenants(batches: Iterable[RefusalBatch]) -> set[str]:
    """Return those tenants of the batches that are not closed, none of which closes meanwhile."""
    named = {count.tenant_id for batch in batches for count in batch.counts}
    named |= {notice.tenant_id for batch in batches for notice in batch.notices}
    return hold_open({str(found) for each in named if (found := _uuid(each)) is not None})


_Key = tuple[str, datetime, str, str, str, str, str, str]


def _count_row(each: RefusalCount, now: datetime) -> tuple[_Key, int] | None:
    project_id = _uuid(each.project_id or NOBODY)
    api_key_id = _uuid(each.api_key_id or NOBODY)
    if project_id is None or api_key_id is None or not 0 < each.count < 2**40:
        return None
    if not 0 <= each.hour * 3600 <= (now + _LATEST_AHEAD).timestamp():
        return None
    hour = datetime.fromtimestamp(each.hour * 3600, UTC)
    reason = (_text(each, name) for name in _REASON)
    return (each.tenant_id, hour, str(project_id), str(api_key_id), *reason), each.count  # type: ignore[return-value]  # four texts


def _add_counts(counts: Iterable[tuple[_Key, int]]) -> None:
    sums: Counter[_Key] = Counter()
    for row, count in counts:
        sums[row] += count
    if not sums:
        return
    # In the order of the key: two that add at the same time lock rows in the same order.
    rows = [
        {**dict(zip(_OF_HOUR, row, strict=True)), "count": count}
        for row, count in sorted(_bounded(sums).items())
    ]
    given = recordset(RefusalRollup, (*_OF_HOUR, "count"))
    with connection.cursor() as cursor:
        cursor.execute(upsert_sql(given), [as_json(rows)])


def _bounded(sums: "Counter[_Key]") -> "Counter[_Key]":
    """Return the sums without more rows of a tenant's hour than one may have: the rest is summed by
    code and limit. Refusals cost nothing, and nobody's may fill the disk."""
    of_hours: dict[tuple[str, datetime], list[_Key]] = {}
    for row in sorted(sums):
        of_hours.setdefault(row[:2], []).append(row)
    bounded: Counter[_Key] = Counter()
    kept = _rows_kept(of_hours)
    for hour, rows in of_hours.items():
        room = max(0, ROWS_OF_AN_HOUR - kept.get(hour, 0))
        for place, row in enumerate(rows):
            tenant_id, at, _, _, _, *reason = row
            rest = (tenant_id, at, NOBODY, NOBODY, OTHER_MODELS, *reason)
            bounded[row if place < room else rest] += sums[row]  # type: ignore[index]  # three texts
    return bounded


def _rows_kept(hours: Iterable[tuple[str, datetime]]) -> dict[tuple[str, datetime], int]:
    """Return how many rows there are of each tenant's hour."""
    tenants, moments = zip(*hours, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT asked.tenant_id::text, asked.hour, (SELECT count(*) FROM"
            " inference_refusalrollup AS kept WHERE kept.tenant_id = asked.tenant_id"
            " AND kept.hour = asked.hour)"
            " FROM unnest(%s::uuid[], %s::timestamptz[]) AS asked (tenant_id, hour)",
            [list(tenants), list(moments)],
        )
        return {(tenant_id, hour): int(rows) for tenant_id, hour, rows in cursor.fetchall()}


def upsert_sql(hours: str) -> str:
    """Return the statement that adds these rows to the hours, and their sums to the days. `hours`
    is SQL for what can stand in a FROM, with the columns of `RefusalRollup`."""
    hour_key = ", ".join(f'"{name}"' for name in _OF_HOUR)
    reason = ", ".join(f'"{name}"' for name in _REASON)
    return f"""
        WITH given AS MATERIALIZED (SELECT * FROM {hours}),
        hours AS (
            INSERT INTO {RefusalRollup._meta.db_table} AS kept ({hour_key}, count)
            SELECT {hour_key}, count FROM given
            ON CONFLICT ({hour_key}) DO UPDATE SET count = kept.count + excluded.count
        )
        INSERT INTO {DailyRefusals._meta.db_table} AS kept (tenant_id, day, {reason}, count)
        SELECT tenant_id, (hour AT TIME ZONE 'UTC')::date AS day, {reason}, sum(count)
        FROM given GROUP BY tenant_id, day, {reason} ORDER BY tenant_id, day, {reason}
        ON CONFLICT (tenant_id, day, {reason}) DO UPDATE SET count = kept.count + excluded.count
    """  # noqa: S608 - names of ours alone


def _newest_row(each: RefusalNotice) -> NewestRefusal | None:
    project_id, api_key_id = _uuid(each.project_id), _uuid(each.api_key_id)
    if project_id is None or api_key_id is None or not 0 <= each.at_ms < 2**42:
        return None
    return NewestRefusal(
        tenant_id=uuid.UUID(each.tenant_id),
        at=datetime.fromtimestamp(each.at_ms / 1000, UTC),
        request_id=_uuid(each.request_id),
        project_id=project_id,
        api_key_id=api_key_id,
        status=each.status if 0 <= each.status < 1000 else 0,
        message=_text(each, "message"),
        **{name: _text(each, name) for name in _REASON},
    )


def _keep_newest(rows: Iterable[NewestRefusal]) -> None:
    """Keep these, and of each of their tenants no more than the newest."""
    of_tenants: dict[uuid.UUID, list[NewestRefusal]] = {}
    for row in rows:
        of_tenants.setdefault(row.tenant_id, []).append(row)
    for own in of_tenants.values():
        own.sort(key=lambda each: each.at)
    NewestRefusal.objects.bulk_create(
        row for _, own in sorted(of_tenants.items()) for row in own[-NEWEST:]
    )
    with connection.cursor() as cursor:
        cursor.execute(_FORGET, [sorted(map(str, of_tenants)), NEWEST])


_FORGET: Final = """
DELETE FROM inference_newestrefusal WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY tenant_id ORDER BY at DESC, id DESC) AS place
        FROM inference_newestrefusal WHERE tenant_id = ANY(%s::uuid[])
    ) AS placed WHERE place > %s
)
"""


def _text(each: Any, name: str) -> str:
    """Return a text that its column can hold."""
    field = cast("models.CharField[str, str]", NewestRefusal._meta.get_field(name))
    text: str = getattr(each, name)
    return text.replace("\0", "")[: field.max_length]


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
