"""What must hold of usage, for fsck: every token that was generated is billed or wasted, nothing is
left open. `sum_checks` compares sums.

Each comparison is one statement, so that it sees one moment of a database that is written to.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from django.utils import timezone
from redis import Redis

from gpu_workers.protocol import keys
from inference.admission.reservations import SWEEP_AGE_MS, Reservation, read_reservation
from inference.lua_constants import ATTEMPT_GAP
from inference.models import UsageQuarantine, UsageRecord
from inference.models.fleet import RETENTION
from inference.operations.slices import span_of
from inference.operations.statements import rows_of
from inference.pools import alone, known_pools
from inference.usage.collector import dispatch_redis
from inference.usage.partitions import month_of, months_later, months_present

_CHUNK: Final = 2000
# Twice what the sweeper waits, and the time that a record takes to PostgreSQL.
_RESOLVED_AFTER_MS: Final = 2 * SWEEP_AGE_MS + 60_000
# What a worker's outbox may keep to itself where its Redis or PostgreSQL is away.
_RECORDED_AFTER: Final = timedelta(hours=1)
# A life may have gone on after the control plane saw it last, which may have been away.
_UNSEEN: Final = timedelta(hours=1)


def attempt_problems(
    months: Sequence[str] | None = None, now: datetime | None = None
) -> Iterator[str]:
    """Find, in these months or ever, wasted attempts of requests that never ended, or had ended
    before they began."""
    for row in rows_of(
        """
        SELECT waste.request_id, waste.attempt, record.attempt AS ended_by, record.outcome
        FROM inference_wastedattempt AS waste
        LEFT JOIN inference_usagerecord AS record ON record.request_id = waste.request_id
            AND record.request_id >= %(first_id)s::uuid AND record.request_id < %(end_id)s::uuid
        WHERE waste.request_id >= %(first_id)s::uuid AND waste.request_id < %(end_id)s::uuid AND (
            (record.request_id IS NULL AND waste.ended_at < %(before)s)
            OR (record.outcome = 'completed' AND waste.attempt > record.attempt))
        ORDER BY waste.request_id, waste.attempt
        """,
        {**span_of(months), "before": (now or timezone.now()) - _RECORDED_AFTER},
    ):
        attempt = f"Request {row['request_id'].hex}: attempt {row['attempt']} was wasted, and "
        if row["ended_by"] is None:
            yield f"{attempt}no record says how the request ended."
        else:
            yield f"{attempt}attempt {row['ended_by']} before it has completed the request."


_BY_LIFE: Final = """
WITH attempts AS (
    SELECT pool, worker_id, finished_at AS ended_at, generated_tokens FROM inference_usagerecord
    WHERE generated_tokens > 0
    UNION ALL
    SELECT pool, worker_id, ended_at, generated_tokens FROM inference_wastedattempt
    WHERE generated_tokens > 0
),
reported AS (
    SELECT life.id, sum(attempts.generated_tokens) AS tokens
    FROM attempts JOIN inference_enginetokencounter AS life USING (pool, worker_id)
    WHERE attempts.ended_at <= life.counted_at GROUP BY life.id
)
SELECT life.pool, life.worker_id, life.counted_at, life.generated_tokens AS counted,
    life.unbilled_tokens AS unbilled, coalesce(reported.tokens, 0) AS reported
FROM inference_enginetokencounter AS life LEFT JOIN reported USING (id)
WHERE life.started_at >= %(from)s
AND life.generated_tokens <> life.unbilled_tokens + coalesce(reported.tokens, 0)
ORDER BY life.pool, life.worker_id
"""


def token_counter_problems() -> Iterator[str]:
    """Find engines that counted other tokens than their workers' attempts reported."""
    # Of an earlier life some records may be gone with their month.
    first = min(months_present(), default=month_of(timezone.now()))
    for row in rows_of(_BY_LIFE, {"from": datetime(first.year, first.month, 1, tzinfo=UTC)}):
        unbilled = f", {row['unbilled']} of them unbilled," if row["unbilled"] else ""
        yield (
            f"Worker {row['worker_id']} of the pool {row['pool']}: by {row['counted_at']} its "
            f"engine had generated {row['counted']} tokens{unbilled} and its attempts report "
            f"{row['reported']}."
        )


# The second condition: more is billed than was generated, and no life may have died with the rest.
_BY_REQUEST: Final = """
WITH wasted AS (
    SELECT request_id, count(*) AS attempts, max(attempt) AS last_attempt,
        sum(completion_tokens) AS tokens, sum(generated_tokens) AS generated
    FROM inference_wastedattempt
    WHERE request_id >= %(first_id)s::uuid AND request_id < %(end_id)s::uuid
    GROUP BY request_id
),
requests AS (
    SELECT request_id, record.pool, record.arrived_at, record.finished_at,
        CASE WHEN record.generated_tokens = 0 THEN record.worker_id END AS unreported_by,
        record.completion_tokens + record.wasted_tokens + coalesce(wasted.tokens, 0) AS accounted,
        record.generated_tokens + coalesce(wasted.generated, 0) AS generated,
        greatest(record.attempt, wasted.last_attempt) AS last_attempt,
        record.attempt = 0 OR greatest(record.attempt, wasted.last_attempt)
            > coalesce(wasted.attempts, 0) + (record.generated_tokens > 0)::int AS has_room
    FROM inference_usagerecord AS record LEFT JOIN wasted USING (request_id)
    WHERE record.request_id >= %(first_id)s::uuid AND record.request_id < %(end_id)s::uuid
    AND record.generated_tokens + coalesce(wasted.generated, 0)
        <> record.completion_tokens + record.wasted_tokens + coalesce(wasted.tokens, 0)
)
SELECT request_id, accounted, generated FROM requests
WHERE (generated > accounted AND last_attempt < %(gap)s)
OR (generated < accounted AND NOT (has_room AND (
    finished_at < %(remembered)s
    OR EXISTS (
        SELECT FROM (
            SELECT worker_id FROM inference_worker WHERE pool = requests.pool
            AND started_at <= requests.finished_at
            AND last_seen_at >= requests.arrived_at - %(unseen)s
            UNION ALL SELECT unreported_by WHERE unreported_by IS NOT NULL
        ) AS life
        WHERE NOT EXISTS (
            SELECT FROM inference_enginetokencounter AS counter
            WHERE counter.pool = requests.pool AND counter.worker_id = life.worker_id
            AND (counter.is_final OR counter.counted_at >= requests.finished_at)
        )
    )
)))
ORDER BY request_id
"""


def generated_problems(
    months: Sequence[str] | None = None, now: datetime | None = None
) -> Iterator[str]:
    """Find, in these months or ever, requests whose attempts generated other tokens than are billed
    and wasted. Tokens of an attempt that may have died with its worker are not known."""
    bounds = {
        **span_of(months),
        "gap": ATTEMPT_GAP,
        "remembered": (now or timezone.now()) - RETENTION + _UNSEEN,
        "unseen": _UNSEEN,
    }
    for row in rows_of(_BY_REQUEST, bounds):
        yield (
            f"Request {row['request_id'].hex}: its attempts generated {row['generated']} tokens, "
            f"and {row['accounted']} are billed or wasted."
        )


def partition_problems(now: datetime | None = None) -> Iterator[str]:
    """Find a current or next month without a partition."""
    this_month = month_of(now or timezone.now())
    for month in sorted({this_month, months_later(this_month, 1)} - months_present()):
        yield (
            f"The usage table has no partition of {month:%Y-%m}: see that Celery's beat runs, or "
            "run manage.py migrate."
        )


def quarantine_problems() -> Iterator[str]:
    """Find usage in quarantine: nobody is charged for it until somebody looks at it."""
    reasons = Counter(UsageQuarantine.objects.values_list("reason", flat=True))
    for reason, count in reasons.most_common():
        yield (
            f"{count} usage entries are in quarantine: {reason}. See manage.py usage_quarantine "
            "list; retry them once the cause is mended, or discard them."
        )


def open_request_problems() -> Iterator[str]:
    """Find requests that are on record as ended and still open in their pool."""
    with dispatch_redis() as redis:
        before_ms = _redis_ms(redis) - _RESOLVED_AFTER_MS
        for pool in known_pools(redis):
            found: list[str] | None = None
            with alone(pool):
                opened = redis.zrangebyscore(keys.pool_open_requests(pool), 0, before_ms)
                found = [uuid.UUID(member.decode()).hex for member in opened]
            if found is None:
                yield f"Pool {pool}: what is open there cannot be read; see its workers."
            for request_id in _on_record(found or ()):
                yield f"Request {request_id} is on record, and open in the pool {pool}."


def reservation_problems() -> Iterator[str]:
    """Find reservations that outlived their request and that no sweeper settled or can read."""
    with dispatch_redis() as redis:
        before_ms = _redis_ms(redis) - _RESOLVED_AFTER_MS
        for tenant in sorted(redis.smembers(keys.tenants_with_reservations())):
            tenant_id = tenant.decode()
            for request, value in redis.hscan_iter(keys.tenant_reservations(tenant_id)):
                reservation = read_reservation(value)
                if reservation is None:
                    yield (
                        f"Tenant {tenant_id}: the reservation of request {request.decode()} cannot "
                        "be read. Once the request has ended, delete the field from the hash "
                        f"{keys.tenant_reservations(tenant_id)} of the dispatch Redis."
                    )
                elif reservation.at_ms < before_ms and not _is_open(redis, request, reservation):
                    yield (
                        f"Tenant {tenant_id}: the reservation of request {request.decode()} is "
                        f"from {datetime.fromtimestamp(reservation.at_ms / 1000, UTC)}, no pool "
                        "has the request open, and it was not settled: see that Celery's beat runs."
                    )


def _is_open(redis: Redis, request_id: bytes, reservation: Reservation) -> bool:
    return any(
        redis.zscore(keys.pool_open_requests(target.pool), request_id) is not None
        for target in reservation.request.targets
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
