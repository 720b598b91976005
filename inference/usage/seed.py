"""Usage in bulk, to measure with: records, their sums and their charges, as if it had been served.

PostgreSQL makes the rows itself, some days in a transaction. A few tenants and keys have most of
the usage. Prices are such that each cost is a whole number of nano-dollars.
"""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from django.db import connection
from django.utils import timezone

from inference.models.rollup import OWNERS
from inference.usage.partitions import make_partitions, month_of
from inference.usage.pools.dealt_days import deal_out_days
from inference.usage.pools.rebuild import HOUR, rebuild_hour
from inference.usage.record_sums import PROMISED_SQL, measures_sql
from inference.usage.rollups import upsert_sql
from tenants.access.load_seed import seed_load
from tenants.billing.invoicing.usage_source import usage_cutoff
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.isolation.scoping import operator_scope

KEYS_OF_A_TENANT: Final = 5
# In one transaction.
_DAYS_AT_ONCE: Final = 5
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, kw_only=True)
class UsageSeed:
    """How much was added, and how long that took."""

    tenants: int
    records: int
    seconds: float


def seed_usage(*, rows: int, tenants: int, days: int, now: datetime | None = None) -> UsageSeed:
    """Add that many records of the last so many days, to the first so many tenants of `seed_load`,
    which are added where they are missing."""
    started = time.monotonic()
    added = seed_load(tenants=tenants, keys=tenants * KEYS_OF_A_TENANT)
    today = (now or timezone.now()).astimezone(UTC).date()
    begun = today - timedelta(days=days)
    with operator_scope("seed usage"):
        make_partitions({month_of(_midnight(day)) for day in _days(begun, days)})
    made = 0
    for first in range(0, days, _DAYS_AT_ONCE):
        until = min(first + _DAYS_AT_ONCE, days)
        count = rows * until // days - made
        with operator_scope("seed usage"):
            _add(begun + timedelta(days=first), until - first, count, tenants)
        made += count
    deal_out_days()
    return UsageSeed(tenants=added.tenants, records=made, seconds=time.monotonic() - started)


def _add(first: date, days: int, count: int, tenants: int) -> None:
    begin_ms = int(_midnight(first).timestamp() * 1000)
    with connection.cursor() as cursor:
        cursor.execute(_MAKE, [tenants, days * _DAY_MS, begin_ms, count])
        cursor.execute(_RECORD)
        cursor.execute(upsert_sql(_hours()))
        cursor.execute(_CHARGES)
        charges = [
            UsageCharge(tenant_id=tenant, model=model, day=day, nanos=int(nanos), requests=requests)
            for tenant, model, day, nanos, requests in cursor.fetchall()
        ]
        cursor.execute("DROP TABLE seeded")
    usage_cutoff()
    for hour in range(24 * days):
        rebuild_hour(_midnight(first) + hour * HOUR)
    post_usage(charges, batch_id=uuid.uuid4())


# A uniform number to the power of three: a tenth of the keys have nearly half of the usage.
_MAKE: Final = """
CREATE TEMP TABLE seeded AS
WITH of_load AS (
    SELECT row_number() OVER (ORDER BY key.public_id) AS number, count(*) OVER () AS keys,
        key.id AS api_key_id, key.project_id, key.tenant_id, tier.name AS tier
    FROM tenants_apikey AS key
    JOIN tenants_tenant AS tenant ON tenant.id = key.tenant_id
    JOIN tenants_tier AS tier ON tier.id = tenant.tier_id
    WHERE tenant.name LIKE 'Load %%' AND tenant.name < 'Load ' || lpad(%s::text, 6, '0')
),
drawn AS MATERIALIZED (
    SELECT 1 + floor(power(random(), 3) * (SELECT max(keys) FROM of_load))::bigint AS number,
        floor(random() * %s)::bigint + %s AS at_ms, md5(random()::text) AS noise,
        random() AS fate, floor(power(random(), 2) * 3)::integer AS which,
        floor(50 + power(random(), 2) * 4000)::integer AS prompt_tokens,
        floor(5 + power(random(), 2) * 1000)::integer AS output,
        floor(15 + power(random(), 4) * 3000)::integer AS ttft, 5 + power(random(), 2) * 60 AS itl
    FROM generate_series(1, %s)
)
SELECT (lpad(to_hex(at_ms), 12, '0') || '7' || left(noise, 3) || '8' || right(noise, 15))::uuid
        AS request_id,
    tenant_id, project_id, api_key_id, tier,
    (ARRAY['small', 'medium', 'large'])[1 + which] AS model,
    CASE WHEN which = 0 AND noise < '3' THEN 'adapter-' || left(noise, 1) ELSE '' END AS adapter,
    CASE WHEN fate < 0.95 THEN 'completed' WHEN fate < 0.98 THEN 'cancelled'
        WHEN fate < 0.99 THEN 'failed' ELSE 'expired' END AS outcome,
    prompt_tokens, prompt_tokens / 4 AS cached_tokens,
    CASE WHEN fate < 0.99 THEN output ELSE 0 END AS completion_tokens,
    CASE WHEN fate < 0.99 THEN
        ((prompt_tokens - prompt_tokens / 4) * 2 + prompt_tokens / 4 + output * 6) * (1 + which)
        * 100::bigint ELSE 0 END AS cost_nanos,
    100000 * (1 + which)::bigint AS price,
    to_timestamp(at_ms / 1000.0) AS arrived_at,
    to_timestamp((at_ms + ttft + output * itl) / 1000.0) AS finished_at,
    CASE WHEN fate < 0.99 THEN ttft END AS ttft_ms,
    CASE WHEN fate < 0.99 THEN itl END AS itl_p50_ms,
    CASE WHEN fate < 0.99 THEN 2 * itl END AS itl_p95_ms,
    CASE WHEN fate < 0.99 THEN 3 END AS queue_ms, 0 AS reasoning_tokens, 0 AS wasted_tokens,
    CASE WHEN fate >= 0.99 THEN 'service_unavailable' WHEN fate >= 0.98 THEN 'worker_lost' END
        AS error_code,
    true AS owed
FROM drawn JOIN of_load USING (number)
"""
_RECORD: Final = """
INSERT INTO inference_usagerecord (request_id, tenant_id, project_id, api_key_id, tier,
    service_class, pool, model, adapter, api, stream, attempt, worker_id, outcome, finish_reason,
    error_code, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, wasted_tokens,
    waste_reason, generated_tokens, price_prompt, price_cached, price_completion, price_permille,
    cost_nanos, arrived_at, finished_at, queue_ms, ttft_ms, itl_p50_ms, itl_p95_ms, recorded_at,
    owed)
SELECT request_id, tenant_id, project_id, api_key_id, tier, 'interactive', model, model, adapter,
    'chat.completions', true, 1, 'seed#1', outcome,
    CASE WHEN outcome = 'completed' THEN 'stop' END, error_code, prompt_tokens,
    cached_tokens, completion_tokens, reasoning_tokens, wasted_tokens, '',
    completion_tokens, 2 * price, price, 6 * price, 1000, cost_nanos,
    arrived_at, finished_at, queue_ms, ttft_ms, itl_p50_ms, itl_p95_ms, finished_at, owed
FROM seeded ORDER BY request_id
"""
_CHARGES: Final = """
SELECT tenant_id, model, (arrived_at AT TIME ZONE 'UTC')::date, sum(cost_nanos), count(*)
FROM seeded WHERE cost_nanos > 0 GROUP BY 1, 2, 3
"""


def _hours() -> str:
    """Return what was seeded, as rows of `UsageRollup`."""
    tenant, *others = OWNERS
    key = ", ".join((tenant, "hour", *others))
    return f"""(
        SELECT {tenant}, date_trunc('hour', arrived_at, 'UTC') AS hour, {", ".join(others)},
            {measures_sql()}
        FROM seeded {PROMISED_SQL} GROUP BY {key} ORDER BY {key}
    ) AS seeded_hours"""  # noqa: S608 - names of ours alone


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _days(first: date, count: int) -> Iterator[date]:
    return (first + timedelta(days=number) for number in range(count))
