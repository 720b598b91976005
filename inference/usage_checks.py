"""What must hold of usage, for fsck: records, sums and ledger say the same, nothing is left open.

Each comparison is one statement, so that it sees one moment of a database that is written to.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from django.db import connection
from django.utils import timezone
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome
from inference.metering import dispatch_redis
from inference.models import UsageQuarantine, UsageRecord
from inference.reservations import SWEEP_AGE_MS, Reservation
from inference.rollups import COUNTERS
from inference.usage_partitions import month_of, months_later, months_present

_CHUNK: Final = 2000
# Twice what the sweeper waits, and the time that a record takes to PostgreSQL.
_RESOLVED_AFTER_MS: Final = 2 * SWEEP_AGE_MS + 60_000
# What a worker's outbox may keep to itself where its Redis or PostgreSQL is away.
_RECORDED_AFTER: Final = timedelta(hours=1)

# What each source has of the counters that it has another way than as a column.
_OF_RECORDS: Final = {
    "requests": "count(*)",
    **{outcome: f"count(*) FILTER (WHERE outcome = '{outcome}')" for outcome in map(str, Outcome)},
}
_OF_ATTEMPTS: Final = {"wasted_tokens": "sum(completion_tokens)"}
_OF_LEDGER: Final = {"cost_nanos": "-sum(entry.nanos)"}
_SUMS: Final = """
WITH of_attempts AS (
    SELECT tenant_id, model, completion_tokens, to_timestamp(
        ('x' || left(replace(request_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0
    ) AS made_at FROM inference_wastedattempt
),
said AS (
    SELECT 'records' AS source, tenant_id, model, (arrived_at AT TIME ZONE 'UTC')::date AS day,
        {of_records}
    FROM inference_usagerecord GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'records', tenant_id, model, (made_at AT TIME ZONE 'UTC')::date, {of_attempts}
    FROM of_attempts GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'hourly rollups', tenant_id, model, (hour AT TIME ZONE 'UTC')::date, {of_rollups}
    FROM inference_usagerollup GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'daily rollups', tenant_id, model, day, {of_rollups}
    FROM inference_dailyusage GROUP BY 2, 3, 4
    UNION ALL
    SELECT 'ledger', entry.tenant_id, entry.model, entry.day, {of_ledger}
    FROM billing_ledgerentry AS entry
    JOIN billing_ledgertransaction AS posted ON posted.id = entry.transaction_id
    WHERE entry.account = 'revenue' AND posted.kind = 'usage' GROUP BY 2, 3, 4
),
by_day AS (SELECT tenant_id, model, day, {sums} FROM said GROUP BY tenant_id, model, day)
SELECT * FROM by_day WHERE {differ} ORDER BY tenant_id, model, day
"""
_SOURCES: Final = ("records", "hourly rollups", "daily rollups", "ledger")


def sum_problems() -> Iterator[str]:
    """Records, rollups and ledger differ for a tenant, model and day."""
    pairs = [
        (name, source)
        for name in COUNTERS
        for source in (_SOURCES if name == "cost_nanos" else _SOURCES[:-1])
    ]
    sums = ", ".join(
        f"coalesce(sum({name}) FILTER (WHERE source = '{source}'), 0) AS {_column(name, source)}"
        for name, source in pairs
    )
    differ = " OR ".join(
        f"{_column(name, 'records')} <> {_column(name, source)}"
        for name, source in pairs
        if source != "records"
    )
    statement = _SUMS.format(
        of_records=", ".join(
            f"{_OF_RECORDS.get(name, f'sum({name})')} AS {name}" for name in COUNTERS
        ),
        of_attempts=", ".join(_OF_ATTEMPTS.get(name, "0") for name in COUNTERS),
        of_rollups=", ".join(f"sum({name})" for name in COUNTERS),
        of_ledger=", ".join(_OF_LEDGER.get(name, "NULL") for name in COUNTERS),
        sums=sums,
        differ=differ,
    )
    for row in _rows(statement):
        said = {pair: int(row[_column(*pair)]) for pair in pairs}
        for name in COUNTERS:
            values = {source: value for (of, source), value in said.items() if of == name}
            if len(set(values.values())) > 1:
                told = ", ".join(f"{value} by {source}" for source, value in values.items())
                yield (
                    f"Tenant {row['tenant_id']}, model {row['model']}, {row['day']}: "
                    f"{name} are {told}."
                )


def attempt_problems(now: datetime | None = None) -> Iterator[str]:
    """An attempt was wasted of a request that never ended, or that had ended before it began."""
    for row in _rows(
        """
        SELECT waste.request_id, waste.attempt, record.attempt AS ended_by, record.outcome
        FROM inference_wastedattempt AS waste
        LEFT JOIN inference_usagerecord AS record USING (request_id)
        WHERE (record.request_id IS NULL AND waste.ended_at < %s)
        OR (record.outcome = 'completed' AND waste.attempt > record.attempt)
        ORDER BY waste.request_id, waste.attempt
        """,
        [(now or timezone.now()) - _RECORDED_AFTER],
    ):
        attempt = f"Request {row['request_id'].hex}: attempt {row['attempt']} was wasted, and "
        if row["ended_by"] is None:
            yield f"{attempt}no record tells how the request ended."
        else:
            yield f"{attempt}attempt {row['ended_by']} before it has completed the request."


def partition_problems(now: datetime | None = None) -> Iterator[str]:
    """A month that is here, or comes next, has nowhere to go."""
    this_month = month_of(now or timezone.now())
    for month in sorted({this_month, months_later(this_month, 1)} - months_present()):
        yield (
            f"The usage table has no partition of {month:%Y-%m}: see that Celery's beat runs, or "
            "run manage.py migrate."
        )


def quarantine_problems() -> Iterator[str]:
    """Usage that nobody is charged for until a person has looked at it."""
    reasons = Counter(UsageQuarantine.objects.values_list("reason", flat=True))
    for reason, count in reasons.most_common():
        yield (
            f"{count} usage entries are in quarantine: {reason}. See manage.py usage_quarantine "
            "list; retry them once the cause is mended, or discard them."
        )


def open_request_problems() -> Iterator[str]:
    """A request is on record as ended and open in its pool all the same."""
    with dispatch_redis() as redis:
        before_ms = _redis_ms(redis) - _RESOLVED_AFTER_MS
        for pool in sorted(redis.smembers(keys.known_pools())):
            name = pool.decode()
            found = redis.zrangebyscore(keys.pool_open_requests(name), 0, before_ms)
            for request_id in _on_record(member.decode() for member in found):
                yield f"Request {request_id} is on record, and open in the pool {name}."


def reservation_problems() -> Iterator[str]:
    """A reservation has outlived its request, and no sweeper has settled it."""
    with dispatch_redis() as redis:
        before_ms = _redis_ms(redis) - _RESOLVED_AFTER_MS
        for tenant in sorted(redis.smembers(keys.tenants_with_reservations())):
            tenant_id = tenant.decode()
            for request, value in redis.hscan_iter(keys.tenant_reservations(tenant_id)):
                reservation = _reservation.decode(value)
                if reservation.at_ms < before_ms and not _is_open(redis, request, reservation):
                    yield (
                        f"Tenant {tenant_id}: the reservation of request {request.decode()} is "
                        f"from {datetime.fromtimestamp(reservation.at_ms / 1000, UTC)}, no pool "
                        "has the request open, and it was not settled: see that Celery's beat runs."
                    )


_reservation: Final = msgspec.msgpack.Decoder(Reservation)


def _is_open(redis: Redis, request_id: bytes, reservation: Reservation) -> bool:
    return any(
        redis.zscore(keys.pool_open_requests(place.pool), request_id) is not None
        for place in reservation.claim.places
    )


def _on_record(request_ids: Iterable[str]) -> Iterator[str]:
    ids = list(request_ids)
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        found = UsageRecord.objects.filter(request_id__in=chunk)
        for request_id in found.order_by("request_id").values_list("request_id", flat=True):
            yield request_id.hex


def _redis_ms(redis: Redis) -> int:
    seconds, microseconds = redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def _column(name: str, source: str) -> str:
    return f"{name}_{source.replace(' ', '_')}"


def _rows(statement: str, parameters: list[Any] | None = None) -> Iterator[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        names = [column.name for column in cursor.description]
        while found := cursor.fetchmany(_CHUNK):
            for row in found:
                yield dict(zip(names, row, strict=True))
