"""Refusals in bulk, to measure with: sums by hour and day as if gateways had told of them.

PostgreSQL makes the rows itself, some days in a transaction. A few keys have most of them.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from django.db import connection
from django.utils import timezone

from inference.refusals.collecting import upsert_sql
from tenants.access.load_seed import seed_load
from tenants.isolation.scoping import operator_scope

KEYS_OF_A_TENANT: Final = 5
# In one transaction.
_DAYS_AT_ONCE: Final = 5


def seed_refusals(*, rows: int, tenants: int, days: int, now: datetime | None = None) -> None:
    """Add about as many hourly rows of the last so many days, to the first so many tenants of
    `seed_load`, which are added where they are missing."""
    seed_load(tenants=tenants, keys=tenants * KEYS_OF_A_TENANT)
    midnight = (
        (now or timezone.now()).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    )
    begun = midnight - timedelta(days=days)
    for first in range(0, days, _DAYS_AT_ONCE):
        until = min(first + _DAYS_AT_ONCE, days)
        count = rows * until // days - rows * first // days
        with operator_scope("seed refusals"), connection.cursor() as cursor:
            cursor.execute(
                upsert_sql(_HOURS),
                [tenants, (until - first) * 24, begun + timedelta(days=first), count],
            )


# A uniform number to the power of three: a tenth of the keys have nearly half of the refusals.
_HOURS: Final = """(
WITH of_load AS (
    SELECT row_number() OVER (ORDER BY key.public_id) AS number, count(*) OVER () AS keys,
        key.id AS api_key_id, key.project_id, key.tenant_id
    FROM tenants_apikey AS key JOIN tenants_tenant AS tenant ON tenant.id = key.tenant_id
    WHERE tenant.name LIKE 'Load %%' AND tenant.name < 'Load ' || lpad(%s::text, 6, '0')
),
drawn AS MATERIALIZED (
    SELECT 1 + floor(power(random(), 3) * (SELECT max(keys) FROM of_load))::bigint AS number,
        floor(random() * %s)::integer AS hours, %s::timestamptz AS begun,
        1 + floor(power(random(), 2) * 8)::integer AS why,
        1 + floor(random() * 3)::integer AS which,
        1 + floor(power(random(), 4) * 500)::integer AS count
    FROM generate_series(1, %s)
)
SELECT tenant_id, begun + hours * interval '1 hour' AS hour, project_id, api_key_id,
    (ARRAY['small', 'medium', 'large'])[which] AS model,
    (ARRAY['requests_per_minute_exceeded', 'tokens_per_minute_exceeded', 'invalid_request',
        'concurrent_requests_exceeded', 'model_not_found', 'insufficient_quota', 'saturated',
        'queue_full'])[why] AS code,
    (ARRAY['requests_per_minute', 'tokens_per_minute', '', 'concurrent_requests', '',
        'spend_per_month', 'ttft_target_ms', ''])[why] AS "limit",
    (ARRAY['key', 'tier', '', 'tier', '', 'project', 'tier', ''])[why] AS scope,
    sum(count)::bigint AS count
FROM drawn JOIN of_load USING (number) GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
) AS given"""
