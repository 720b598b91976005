"""Sums by hour and day, kept with the records: each batch adds what it has inserted."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from operator import add, itemgetter
from typing import Any, Final, NamedTuple

import msgspec
from django.db import connection, models

from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.promises import are_tokens_in_time, has_failed, is_first_token_in_time
from inference.histograms import as_number, bucket_of, digit_sql
from inference.models.rollup import (
    COUNTERS,
    OWNERS,
    POOL_OWNERS,
    DailyPoolUsage,
    DailyTenantUsage,
    DailyUsage,
    ErrorRollup,
    PoolTenantUsage,
    PoolUsage,
    UsageRollup,
)
from inference.usage.recordset import as_json, recordset
from tenants.models import Tier

HISTOGRAMS: Final = ("ttft_histogram", "itl_histogram", "duration_histogram", "queue_histogram")
# Unknown of requests of a tier that is no more, and in rows of before it was counted.
IN_TIME: Final = ("ttft_in_time", "itl_in_time")
# Null in rows of before they were counted.
OWED: Final = (
    "requests_owed",
    "failed_owed",
    "ttft_owed",
    "ttft_owed_in_time",
    "itl_owed",
    "itl_owed_in_time",
)
MEASURES: Final = (*COUNTERS, *HISTOGRAMS, *IN_TIME, *OWED)
OF_POOL_TENANTS: Final = ("requests", "prompt_tokens", "completion_tokens", "cost_nanos")
# Ends that are errors; one of them without a code has the one after it.
ERRORS: Final = tuple(each.value for each in (Outcome.REFUSED, Outcome.EXPIRED, Outcome.FAILED))
UNKNOWN_CODE: Final = "unknown"

# Of `DailyTenantUsage`, from the hours of its day.
_HOUR_SQL: Final = digit_sql("extract(hour FROM hour AT TIME ZONE 'UTC')::integer")
BY_HOUR: Final = {
    "requests_by_hour": f"sum(requests * {_HOUR_SQL})",
    "down_by_hour": f"sum((failed + expired) * {_HOUR_SQL})",
}

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, kw_only=True)
class Rollup:
    """Two tables of `MEASURES`, by hour and by day; in the key the period stands between
    `before` and `after`."""

    hours: type[models.Model]
    days: type[models.Model]
    before: tuple[str, ...]
    after: tuple[str, ...]

    def key(self, period: str) -> tuple[str, ...]:
        return (*self.before, period, *self.after)


OF_TENANTS: Final = Rollup(hours=UsageRollup, days=DailyUsage, before=OWNERS[:1], after=OWNERS[1:])
OF_POOLS: Final = Rollup(hours=PoolUsage, days=DailyPoolUsage, before=(), after=POOL_OWNERS)
TENANT_DAY_KEY: Final = ("tenant_id", "day", "tier")
_ERROR_KEY: Final = (*OF_TENANTS.key("hour"), "code")
_POOL_TENANT_KEY: Final = ("hour", "pool", "tenant_id")


class Use(msgspec.Struct, kw_only=True, gc=False):
    """What a record, or an attempt that was wasted, adds to its hour and day. Ids as canonical
    texts, latencies in ms. `outcome` is "" of an attempt that did not end its request, and
    `service_class` then that of its tier. `duration_ms` is of what completed, `waited_ms` from the
    arrival to any end."""

    tenant_id: str
    project_id: str
    api_key_id: str
    model: str
    adapter: str
    tier: str
    arrived_ms: int
    pool: str = ""
    service_class: str = ""
    outcome: str = ""
    error_code: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    wasted_tokens: int = 0
    cost_nanos: int = 0
    ttft_ms: float | None = None
    itl_ms: float | None = None
    itl_p95_ms: float | None = None
    duration_ms: float | None = None
    waited_ms: float | None = None
    queue_ms: float | None = None
    owed: bool | None = None


class Promised(NamedTuple):
    """What a tier promises now."""

    ttft_ms: int
    inter_token_ms: int
    service_class: str


_Key = tuple[Any, ...]
_Buckets = tuple[int | None, ...]
_InTime = tuple[int, int] | None
# As `OWED`; None of a request that is owed nothing.
_Owed = tuple[int, ...] | None


class _Sum:
    """Of one hour's row."""

    __slots__ = ("counters", "histograms", "in_time", "owed")

    def __init__(self) -> None:
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.histograms: tuple[dict[int, int], ...] = ({}, {}, {}, {})
        self.in_time: _InTime = (0, 0)
        self.owed: tuple[int, ...] = (0,) * len(OWED)

    def add(self, use: Use, buckets: _Buckets, in_time: _InTime, owed: _Owed) -> None:
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
        for counts, bucket in zip(self.histograms, buckets, strict=True):
            if bucket is not None:
                counts[bucket] = counts.get(bucket, 0) + 1
        kept = self.in_time
        if in_time is None or kept is None:
            self.in_time = None
        else:
            self.in_time = (kept[0] + in_time[0], kept[1] + in_time[1])
        if owed is not None:
            self.owed = tuple(map(add, self.owed, owed))

    def columns(self) -> dict[str, object]:
        histograms = zip(HISTOGRAMS, map(as_number, self.histograms), strict=True)
        in_time = zip(IN_TIME, self.in_time or (None, None), strict=True)
        owed = zip(OWED, self.owed, strict=True)
        return {**self.counters, **dict(histograms), **dict(in_time), **dict(owed)}


class _Batch:
    """All that some uses add, each looked at once."""

    def __init__(self, uses: Iterable[Use], promised: Mapping[str, Promised]) -> None:
        self.of_tenants: dict[_Key, _Sum] = {}
        self.of_pools: dict[_Key, _Sum] = {}
        self.of_pool_tenants: dict[_Key, list[int]] = {}
        self.errors: Counter[_Key] = Counter()
        for use in uses:
            self._add(use, promised.get(use.tier))

    def _add(self, use: Use, promised: Promised | None) -> None:
        hour = use.arrived_ms // _HOUR_MS
        latencies = (use.ttft_ms, use.itl_ms, use.duration_ms, use.queue_ms)
        buckets = tuple([None if each is None else bucket_of(each) for each in latencies])
        in_time = None if promised is None else _in_time(use, promised)
        owed = _owed(use, promised) if use.owed else None
        service_class = use.service_class or (promised.service_class if promised else "")
        owners = (use.project_id, use.api_key_id, use.model, use.adapter, use.tier)
        of_tenant = (use.tenant_id, hour, *owners)
        of_pool = (hour, use.pool, use.model, use.tier, service_class)
        for sums, key in ((self.of_tenants, of_tenant), (self.of_pools, of_pool)):
            found = sums.get(key)
            if found is None:
                found = sums[key] = _Sum()
            found.add(use, buckets, in_time, owed)
        if not use.outcome:
            return
        used = self.of_pool_tenants.setdefault((hour, use.pool, use.tenant_id), [0, 0, 0, 0])
        used[0] += 1
        used[1] += use.prompt_tokens
        used[2] += use.completion_tokens
        used[3] += use.cost_nanos
        if use.outcome in ERRORS:
            self.errors[(*of_tenant, use.error_code or UNKNOWN_CODE)] += 1


def _in_time(use: Use, promised: Promised) -> tuple[int, int]:
    """Return 1 for each of the tier's latency targets that the request kept, owed or not."""
    return (
        int(use.ttft_ms is not None and use.ttft_ms <= promised.ttft_ms),
        int(use.itl_p95_ms is not None and use.itl_p95_ms <= promised.inter_token_ms),
    )


def _owed(use: Use, promised: Promised | None) -> tuple[int, ...]:
    """Return what a request that is owed its tier's promises adds to each of `OWED`."""
    failed = int(has_failed(use.outcome, use.error_code))
    if promised is None:
        return (1, failed, 0, 0, 0, 0)
    ttft = is_first_token_in_time(
        ttft_ms=use.ttft_ms,
        waited_ms=use.waited_ms,
        target_ms=promised.ttft_ms,
        new_prompt_tokens=use.prompt_tokens - use.cached_tokens,
        outcome=use.outcome,
        error_code=use.error_code,
    )
    itl = are_tokens_in_time(
        itl_p95_ms=use.itl_p95_ms,
        target_ms=promised.inter_token_ms,
        completion_tokens=use.completion_tokens,
    )
    return (1, failed, int(ttft is not None), int(bool(ttft)), int(itl is not None), int(bool(itl)))


def add_to_rollups(uses: Iterable[Use]) -> None:
    """Add to the rows of all sums, in the transaction of what is added. For operators. Last in a
    transaction: all collectors add to the same few rows of pools, which are locked until its
    end."""
    batch = _Batch(uses, _promises())
    if not batch.of_tenants:
        return
    tables = (
        (_upsert(OF_TENANTS), OF_TENANTS.key("hour"), batch.of_tenants, _Sum.columns),
        (_adding(ErrorRollup, _ERROR_KEY, ("requests",)), _ERROR_KEY, batch.errors, _one),
        (
            _adding(PoolTenantUsage, _POOL_TENANT_KEY, OF_POOL_TENANTS),
            _POOL_TENANT_KEY,
            batch.of_pool_tenants,
            _of_pool_tenant,
        ),
        (_upsert(OF_POOLS), OF_POOLS.key("hour"), batch.of_pools, _Sum.columns),
    )
    with connection.cursor() as cursor:
        for statement, key, sums, columns in tables:
            if sums:
                cursor.execute(statement, [as_json(_rows(key, sums, columns))])


def _promises() -> dict[str, Promised]:
    tiers = Tier.objects.order_by().values_list(
        "name", "ttft_target_ms", "inter_token_target_ms", "service_class"
    )
    return {name: Promised(ttft, itl, of_class) for name, ttft, itl, of_class in tiers}


def _one(requests: int) -> dict[str, object]:
    return {"requests": requests}


def _of_pool_tenant(used: Sequence[int]) -> dict[str, object]:
    return dict(zip(OF_POOL_TENANTS, used, strict=True))


def _rows(
    key: Sequence[str], sums: Mapping[_Key, Any], columns: Any
) -> Iterator[dict[str, object]]:
    """Return rows in the order of the key: collectors that add at the same time lock rows in the
    same order."""
    for values, row in sorted(sums.items(), key=itemgetter(0)):
        named: dict[str, object] = dict(zip(key, values, strict=True))
        hour = int(values[key.index("hour")])
        yield named | {"hour": datetime.fromtimestamp(hour * 3600, UTC)} | columns(row)


@cache
def _upsert(rollup: Rollup) -> str:
    return upsert_sql(recordset(rollup.hours, (*rollup.key("hour"), *MEASURES)), rollup)


def upsert_sql(hours: str, rollup: Rollup = OF_TENANTS) -> str:
    """Return the statement that adds these rows to the hours, and their sums by day to the days;
    those of tenants to the days of each tenant too. `hours` is SQL for what can stand in a FROM,
    with the columns of the hours. What a row does not know it does not learn: nothing is added to
    null."""
    hour_key, measures = ", ".join(rollup.key("hour")), ", ".join(MEASURES)
    days = _add_days(rollup.days, rollup.key("day"))
    whole = ""
    if rollup is OF_TENANTS:
        whole = f"tenants AS ({_add_days(DailyTenantUsage, TENANT_DAY_KEY, BY_HOUR)}),"
    return f"""
        WITH given AS MATERIALIZED (
            SELECT *, (hour AT TIME ZONE 'UTC')::date AS day FROM {hours}
        ),
        {whole}
        hours AS (
            INSERT INTO {rollup.hours._meta.db_table} AS kept ({hour_key}, {measures})
            SELECT {hour_key}, {measures} FROM given
            ON CONFLICT ({hour_key}) DO UPDATE SET {_added(MEASURES)}
        )
        {days}
    """  # noqa: S608 - names of ours alone


def _add_days(
    table: type[models.Model], key: Sequence[str], others: Mapping[str, str] | None = None
) -> str:
    """Return the statement that adds `MEASURES` of the rows `given`, and other aggregates of
    them."""
    sums = {name: f"sum({name})" for name in MEASURES} | dict(others or {})
    columns = ", ".join(key)
    return f"""
        INSERT INTO {table._meta.db_table} AS kept ({columns}, {", ".join(sums)})
        SELECT {columns}, {", ".join(sums.values())}
        FROM given GROUP BY {columns} ORDER BY {columns}
        ON CONFLICT ({columns}) DO UPDATE SET {_added(sums)}
    """  # noqa: S608 - names of ours alone


@cache
def _adding(model: type[models.Model], key: tuple[str, ...], measures: tuple[str, ...]) -> str:
    columns = ", ".join((*key, *measures))
    return f"""
        INSERT INTO {model._meta.db_table} AS kept ({columns})
        SELECT {columns} FROM {recordset(model, (*key, *measures))}
        ON CONFLICT ({", ".join(key)}) DO UPDATE SET {_added(measures)}
    """  # noqa: S608 - names of ours alone


def _added(measures: Iterable[str]) -> str:
    return ", ".join(f"{name} = kept.{name} + excluded.{name}" for name in measures)
