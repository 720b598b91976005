"""Sums by hour and day, kept with the records: each batch adds what it has inserted."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from operator import itemgetter
from typing import Final

import msgspec
from django.db import connection

from gpu_workers.protocol.messages import Outcome
from inference.histograms import as_number, bucket_of
from inference.models.rollup import OWNERS, DailyUsage, UsageRollup
from inference.usage.recordset import as_json, recordset

COUNTERS: Final = (
    "requests",
    *(outcome.value for outcome in Outcome),
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "wasted_tokens",
    "cost_nanos",
)
HISTOGRAMS: Final = ("ttft_histogram", "itl_histogram", "duration_histogram")
MEASURES: Final = (*COUNTERS, *HISTOGRAMS)

_HOUR_MS: Final = 3_600_000


class Use(msgspec.Struct, kw_only=True, gc=False):
    """What a record, or an attempt that was wasted, adds to its hour and day. Ids as canonical
    texts, latencies in ms. `outcome` is "" of an attempt that did not end its request."""

    tenant_id: str
    project_id: str
    api_key_id: str
    model: str
    adapter: str
    tier: str
    arrived_ms: int
    outcome: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    wasted_tokens: int = 0
    cost_nanos: int = 0
    ttft_ms: float | None = None
    itl_ms: float | None = None
    duration_ms: float | None = None


_Key = tuple[str, int, str, str, str, str, str]


class _Sum:
    """Of one hour's row."""

    __slots__ = ("counters", "histograms")

    def __init__(self) -> None:
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.histograms: tuple[dict[int, int], ...] = ({}, {}, {})

    def add(self, use: Use) -> None:
        counters = self.counters
        if use.outcome:
            counters["requests"] += 1
            counters[use.outcome] += 1
        counters["prompt_tokens"] += use.prompt_tokens
        counters["cached_tokens"] += use.cached_tokens
        counters["completion_tokens"] += use.completion_tokens
        counters["reasoning_tokens"] += use.reasoning_tokens
        counters["wasted_tokens"] += use.wasted_tokens
        counters["cost_nanos"] += use.cost_nanos
        for counts, latency in zip(
            self.histograms, (use.ttft_ms, use.itl_ms, use.duration_ms), strict=True
        ):
            if latency is not None:
                bucket = bucket_of(latency)
                counts[bucket] = counts.get(bucket, 0) + 1


def add_to_rollups(uses: Iterable[Use]) -> None:
    """Add to the rows of both tables, in the transaction of what is added. For operators."""
    sums: dict[_Key, _Sum] = {}
    for use in uses:
        key = (
            use.tenant_id,
            use.arrived_ms // _HOUR_MS,
            use.project_id,
            use.api_key_id,
            use.model,
            use.adapter,
            use.tier,
        )
        found = sums.get(key)
        if found is None:
            found = sums[key] = _Sum()
        found.add(use)
    if sums:
        with connection.cursor() as cursor:
            cursor.execute(_upsert(), [as_json(_rows(sums))])


def _rows(sums: dict[_Key, _Sum]) -> Iterator[dict[str, object]]:
    """Return rows in the order of the key: collectors that add at the same time lock rows in the
    same order."""
    for (tenant_id, hour, project_id, api_key_id, model, adapter, tier), row in sorted(
        sums.items(), key=itemgetter(0)
    ):
        ttft, itl, duration = row.histograms
        yield {
            "tenant_id": tenant_id,
            "hour": datetime.fromtimestamp(hour * 3600, UTC),
            "project_id": project_id,
            "api_key_id": api_key_id,
            "model": model,
            "adapter": adapter,
            "tier": tier,
            **row.counters,
            "ttft_histogram": as_number(ttft),
            "itl_histogram": as_number(itl),
            "duration_histogram": as_number(duration),
        }


@cache
def _upsert() -> str:
    tenant, *others = OWNERS
    return upsert_sql(recordset(UsageRollup, (tenant, "hour", *others, *MEASURES)))


def upsert_sql(hours: str) -> str:
    """Return the statement that adds these rows to the hours, and their sums by day to the days.
    `hours` is SQL for what can stand in a FROM, with the columns of `UsageRollup`."""
    tenant, *others = OWNERS
    hour_key, day_key = (", ".join((tenant, period, *others)) for period in ("hour", "day"))
    measures = ", ".join(MEASURES)
    added = ", ".join(f"{name} = kept.{name} + excluded.{name}" for name in MEASURES)
    sums = ", ".join(f"sum({name})" for name in MEASURES)
    return f"""
        WITH given AS MATERIALIZED (SELECT * FROM {hours}),
        hours AS (
            INSERT INTO {UsageRollup._meta.db_table} AS kept ({hour_key}, {measures})
            SELECT {hour_key}, {measures} FROM given
            ON CONFLICT ({hour_key}) DO UPDATE SET {added}
        )
        INSERT INTO {DailyUsage._meta.db_table} AS kept ({day_key}, {measures})
        SELECT {tenant}, (hour AT TIME ZONE 'UTC')::date AS day, {", ".join(others)}, {sums}
        FROM given GROUP BY {day_key} ORDER BY {day_key}
        ON CONFLICT ({day_key}) DO UPDATE SET {added}
    """  # noqa: S608 - names of ours alone
