"""What the hours of pools cost, dealt out to whoever used them then, by the scheduler's own units:
a token of a prompt is `INPUT_WEIGHT` of them, one of an output `OUTPUT_WEIGHT`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.db import connection

from inference.lua_constants import INPUT_WEIGHT, OUTPUT_WEIGHT
from inference.models.rollup import PoolTenantUsage, PoolUsage

# By pool and hour: GPU milliseconds, and nano-dollars.
Costs = Mapping[tuple[str, datetime], tuple[int, int]]
# From a moment to before another, both at a full hour.
Span = tuple[datetime, datetime]


def deal_out(of: str, spans: Sequence[Span], costs: Costs) -> dict[str, tuple[int, int, int]]:
    """Return tokens, revenue and dealt out nano-dollars of each `pool`, `model` or `tenant_id` in
    the hours of the spans. Runs in an `operator_scope`."""
    if not spans:
        return {}
    table = PoolTenantUsage if of == "tenant_id" else PoolUsage
    statement = _DEAL.format(costs=COSTS_SQL, units=UNITS_SQL, of=of, table=table._meta.db_table)
    begins, ends = map(list, zip(*spans, strict=True))
    with connection.cursor() as cursor:
        cursor.execute(statement, {**cost_columns(costs), "begins": begins, "ends": ends})
        return {of: (int(tokens), int(paid), int(nanos)) for of, tokens, paid, nanos in cursor}


def cost_columns(costs: Costs) -> dict[str, Any]:
    """Return the parameters of `COSTS_SQL`."""
    hours = [(*hour, *cost) for hour, cost in sorted(costs.items())]
    columns = [list(column) for column in zip(*hours, strict=True)] or [[], [], [], []]
    return dict(zip(("pools", "hours", "gpu_ms", "nanos"), columns, strict=True))


UNITS_SQL: Final = f"{INPUT_WEIGHT} * prompt_tokens + {OUTPUT_WEIGHT} * completion_tokens"
COSTS_SQL: Final = """
costs AS (
    SELECT * FROM unnest(%(pools)s::text[], %(hours)s::timestamptz[], %(gpu_ms)s::bigint[],
        %(nanos)s::bigint[]) AS known(pool, hour, gpu_ms, nanos)
)
"""
# Of an hour's nano-dollars everybody gets the whole ones that its units come to; those left over go
# one each to who missed the next by the least, of two alike to the first by name.
_DEAL: Final = """
WITH {costs},
spans AS (
    SELECT * FROM unnest(%(begins)s::timestamptz[], %(ends)s::timestamptz[])
        AS asked(begins, ends)
),
used AS (
    SELECT hour, pool, {of}::text AS name, sum(prompt_tokens + completion_tokens) AS tokens,
        sum(cost_nanos) AS revenue, sum({units}) AS units
    FROM {table} JOIN spans ON hour >= spans.begins AND hour < spans.ends GROUP BY 1, 2, 3
),
shared AS (
    SELECT used.*, nanos * units AS share,
        nullif(sum(units) OVER (PARTITION BY pool, hour), 0) AS total, nanos
    FROM used LEFT JOIN costs USING (pool, hour)
),
whole AS (
    SELECT *, div(share, total) AS dealt, mod(share, total) AS missed FROM shared
),
ranked AS (
    SELECT *, nanos - sum(dealt) OVER (PARTITION BY pool, hour) AS left_over,
        row_number() OVER (PARTITION BY pool, hour ORDER BY missed DESC, name COLLATE "C") AS place
    FROM whole
)
SELECT name, sum(tokens), sum(revenue), coalesce(sum(dealt + (place <= left_over)::int), 0)
FROM ranked GROUP BY name
"""
