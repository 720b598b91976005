"""What GPUs cost in the world of known figures, and who bears how much of it, dealt out here from
the records themselves."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg

from tenants.billing.models import PoolCost, PoolHour
from tenants.billing.pricing import price_book
from tests.support.database import TableEmptier
from tests.support.figures.direct_sums import USES, asked

_HOUR: Final = timedelta(hours=1)
# Micro-dollars of a GPU hour and GPUs of a worker, until this hour and from then on.
_BEFORE: Final = {"first-pool": (987_653, 1), "second-pool": (6_543_211, 2)}
_NOW: Final = {"first-pool": (1_234_567, 1), "second-pool": (7_654_321, 2)}
# Hours back from which there were workers, and from which it is known what they cost.
_WORKED: Final = 80
_COSTED: Final = 72
# Of the scheduler: a token of a prompt is one unit of work, one of an output two.
_UNITS: Final = "prompt_tokens + 2 * completion_tokens"

# Of an hour a part of a nano-dollar is left out.
_COSTS: Final = """
SELECT pool, hour, worker_ms * gpus_per_worker,
    div(worker_ms::numeric * gpus_per_worker * micros_per_gpu_hour * 1000, 3600000)::bigint
FROM billing_poolhour JOIN billing_poolcost USING (pool)
WHERE hour >= date_trunc('hour', effective_from, 'UTC')
    AND hour < coalesce(effective_until, 'infinity')
"""


@contextmanager
def costs_of_days(superuser_url: str) -> Iterator[None]:
    """Have it known for days what GPUs cost. Nobody can enter that afterwards, so it is written
    past the triggers that refuse it."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    with psycopg.connect(superuser_url, autocommit=True) as superuser:
        superuser.execute("SET session_replication_role = replica")
        for pool, (micros, gpus) in _BEFORE.items():
            superuser.execute(
                "INSERT INTO billing_poolcost (id, pool, micros_per_gpu_hour, gpus_per_worker,"
                " effective_from, effective_until, closed_at) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [uuid.uuid4(), pool, micros, gpus, hour - _COSTED * _HOUR, hour, hour],
            )
    yield
    emptier = TableEmptier(superuser_url)
    emptier.empty()
    emptier.close()


def cost_something(pools: Collection[str]) -> datetime:
    """Let pools run in hours before they had a cost, in those that `costs_of_days` knows, and in
    some that are still to come; from now on they cost more. Return when that was entered."""
    for pool in sorted(pools):
        micros, gpus = _NOW[pool]
        cost = PoolCost(pool=pool, micros_per_gpu_hour=micros, gpus_per_worker=gpus)
        now = price_book.enter(cost).effective_from
        hour = now.replace(minute=0, second=0, microsecond=0)
        PoolHour.objects.bulk_create(
            PoolHour(pool=pool, hour=hour + each * _HOUR, worker_ms=3_599_983 - each)
            for each in range(-_WORKED, 9)
        )
    return now


@dataclass(kw_only=True)
class Bearer:
    """A pool, a model or a tenant, with nano-dollars; `idle` and `gpu_ms` are of pools alone."""

    tokens: int = 0
    revenue: int = 0
    dealt: int = 0
    idle: int = 0
    gpu_ms: int = 0

    @property
    def cost(self) -> int:
        return self.dealt + self.idle


def dealt(column: str) -> tuple[dict[str, Bearer], int]:
    """Return each `pool`, `model` or `tenant_id` with what it bears of all costs, and what the
    hours cost in which nobody used a pool.

    Of an hour's nano-dollars everybody bears as many whole ones as its units come to; those that
    are left are borne one each by who missed the next by the least, the first by name of two alike.
    """
    bearers: defaultdict[str, Bearer] = defaultdict(Bearer)
    units: defaultdict[tuple[str, datetime], dict[str, int]] = defaultdict(dict)
    for pool, hour, name, worked, tokens, revenue in asked(
        f"{USES} SELECT pool, date_trunc('hour', at, 'UTC'), {column}::text, sum({_UNITS})::bigint,"  # noqa: S608
        " sum(prompt_tokens + completion_tokens)::bigint, sum(cost_nanos)::bigint"
        " FROM uses GROUP BY 1, 2, 3"
    ):
        units[pool, hour][name] = worked
        bearers[name].tokens += tokens
        bearers[name].revenue += revenue
    idle = 0
    for pool, hour, gpu_ms, nanos in asked(_COSTS):
        users = units.get((pool, hour), {})
        if not any(users.values()):
            idle += nanos
        for name, part in _parts(nanos, users).items():
            bearers[name].dealt += part
        if column == "pool":
            bearers[pool].gpu_ms += gpu_ms
            bearers[pool].idle += 0 if any(users.values()) else nanos
    return dict(bearers), idle


def _parts(nanos: int, units: dict[str, int]) -> dict[str, int]:
    total = sum(units.values())
    if not total:
        return {}
    parts = {name: nanos * each // total for name, each in units.items()}
    missed = sorted(units, key=lambda name: (-(nanos * units[name] % total), name))
    for name in missed[: nanos - sum(parts.values())]:
        parts[name] += 1
    return parts
