"""What PostgreSQL sums up from records and refusals themselves, past every sum that is kept."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

from django.db import connection

from inference.histograms import ERROR
from tenants.isolation.scoping import operator_scope

COUNTERS: Final = (
    "requests", "completed", "cancelled", "refused", "expired", "failed", "prompt_tokens",
    "cached_tokens", "completion_tokens", "reasoning_tokens", "wasted_tokens", "cost_nanos",
)  # fmt: skip
LATENCIES: Final = ("ttft_ms", "inter_token_ms", "queue_ms", "duration_ms")
QUANTILES: Final = (0.5, 0.95, 0.99)
# Of a histogram, and of the three digits that are told.
TOLERANCE: Final = ERROR + 0.005

# A request counts where it arrived, what another attempt of it wasted there too.
USES: Final = """
WITH uses AS (
    SELECT record.tenant_id, record.project_id, api_key_id, key.created_by_id, record.model,
        record.adapter, record.tier, record.pool, record.service_class, arrived_at AS at, outcome,
        coalesce(nullif(error_code, ''), 'unknown') AS code, 1 AS requests, prompt_tokens,
        cached_tokens, completion_tokens, reasoning_tokens, wasted_tokens, cost_nanos,
        ttft_ms::float8 AS ttft_ms, itl_p50_ms AS inter_token_ms, itl_p95_ms,
        queue_ms::float8 AS queue_ms, CASE WHEN outcome = 'completed' THEN
            extract(epoch FROM finished_at - arrived_at)::float8 * 1000 END AS duration_ms, labels
    FROM inference_usagerecord AS record JOIN tenants_apikey AS key ON key.id = api_key_id
    UNION ALL
    SELECT wasted.tenant_id, wasted.project_id, wasted.api_key_id, key.created_by_id, wasted.model,
        wasted.adapter, wasted.tier, wasted.pool, record.service_class, arrived_at, '', NULL, 0, 0,
        0, 0, 0, wasted.completion_tokens, 0, NULL, NULL, NULL, NULL, NULL, wasted.labels
    FROM inference_wastedattempt AS wasted JOIN inference_usagerecord AS record USING (request_id)
    JOIN tenants_apikey AS key ON key.id = wasted.api_key_id
)
"""
COLUMNS: Final = {
    "day": "(at AT TIME ZONE 'UTC')::date",
    "hour": "date_trunc('hour', at, 'UTC')",
}
_SUMMED: Final = ", ".join(
    f"sum({name})"
    if name == "requests" or "_" in name
    else f"count(*) FILTER (WHERE outcome = '{name}')"
    for name in COUNTERS
)
_QUANTILES: Final = ", ".join(
    f"percentile_disc(ARRAY{list(QUANTILES)}) WITHIN GROUP (ORDER BY {name})" for name in LATENCIES
)


def asked(statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
    """Return the rows of a statement, over all tenants."""
    with operator_scope("test"), connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[Any] = cursor.fetchall()
        return rows


def summed(first: date, last: date, *by: str, **only: Any) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return by each group of the columns its `COUNTERS`, and a list of the `QUANTILES` for each
    of `LATENCIES`, None of nothing; of the days (UTC) and of what is `only` wanted."""
    groups = ", ".join(COLUMNS.get(name, name) for name in by)
    where = "".join(f" AND {name} = %({name})s" for name in only)
    rows = asked(
        f"{USES} SELECT {groups}{', ' if by else ''}{_SUMMED}, {_QUANTILES} FROM uses"  # noqa: S608
        f" WHERE {COLUMNS['day']} BETWEEN %(first)s AND %(last)s{where}"
        f"{' GROUP BY ' if by else ''}{groups}",
        {**only, "first": first, "last": last},
    )
    found = {}
    for row in rows:
        counters, quantiles = row[len(by) :][: len(COUNTERS)], row[len(by) + len(COUNTERS) :]
        found[row[: len(by)]] = {
            **{name: int(each or 0) for name, each in zip(COUNTERS, counters, strict=True)},
            **dict(zip(LATENCIES, quantiles, strict=True)),
        }
    return found


def as_json(value: Any) -> Any:
    """Return what stands for a group in the API's JSON."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value if value is None else str(value)
