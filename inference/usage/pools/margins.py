"""What pools, models and tenants earn and what they cost, from sums.

What the GPUs of a pool cost in an hour is dealt out to whoever used it then (`dealing`). An hour in
which a pool did nothing is idle and nobody's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from django.db import connection

from inference.models.rollup import PoolUsage
from inference.usage.pools.dealing import COSTS_SQL, UNITS_SQL, cost_columns, deal_out
from inference.usage.pools.dealt_days import dealt_to_tenants
from inference.usage.pools.rebuild import are_complete
from tenants.billing.pricing.gpu_costs import hour_costs


class SumsMissing(RuntimeError):
    """Usage of that time is not summed up by pool yet."""


class By(StrEnum):
    """Whose margins: `pool` and `model` by name, `tenant` by id."""

    POOL = "pool"
    MODEL = "model"
    TENANT = "tenant"


@dataclass(frozen=True, kw_only=True)
class Margin:
    """Nano-dollars. Tokens are those of prompts and outputs together. `dealt_nanos` is its part of
    what pools cost in the hours in which they worked. Of a pool alone: `idle_nanos` of its hours
    without work, `gpu_ms` of all."""

    of: str
    tokens: int
    revenue_nanos: int
    dealt_nanos: int
    idle_nanos: int = 0
    gpu_ms: int = 0

    @property
    def cost_nanos(self) -> int:
        return self.dealt_nanos + self.idle_nanos

    @property
    def margin_nanos(self) -> int:
        return self.revenue_nanos - self.cost_nanos

    @property
    def cost_nanos_per_1k_tokens(self) -> int | None:
        """Return the cost of 1,000 tokens in nano-dollars, None where none were used."""
        return self.cost_nanos * 1000 // self.tokens if self.tokens else None


@dataclass(frozen=True, kw_only=True)
class Margins:
    """What was dealt out to the rows and `idle_nanos`, that of all pools, are together what all
    pools cost, to the nano-dollar."""

    rows: Sequence[Margin]
    idle_nanos: int


def margins(begin: datetime, end: datetime, by: By = By.POOL) -> Margins:
    """Return the margins of all who used or cost something in the hours from `begin` to before
    `end`, by name. Runs in an `operator_scope`. Raises `SumsMissing`."""
    if not are_complete(begin):
        raise SumsMissing(
            "Usage of these days is not summed up by pool yet: run manage.py rebuild_usage_sums."
        )
    costs = hour_costs(begin, end)
    if by is By.TENANT:
        rows = dealt_to_tenants(begin, end, costs)
    else:
        rows = deal_out(by.value, [(begin, end)], costs)
    with connection.cursor() as cursor:
        cursor.execute(_BY_POOL, {**cost_columns(costs), "begin": begin, "end": end})
        pools = {pool: tuple(map(int, sums)) for pool, *sums in cursor.fetchall()}
    idle = pools if by is By.POOL else {}
    found = [_margin(of, rows, idle) for of in sorted(rows.keys() | idle.keys())]
    return Margins(rows=found, idle_nanos=sum(nanos for _gpu_ms, nanos in pools.values()))


def _margin(
    of: str, rows: dict[str, tuple[int, int, int]], pools: dict[str, tuple[int, ...]]
) -> Margin:
    tokens, revenue_nanos, dealt_nanos = rows.get(of, (0, 0, 0))
    gpu_ms, idle_nanos = pools.get(of, (0, 0))
    return Margin(
        of=of,
        tokens=tokens,
        revenue_nanos=revenue_nanos,
        dealt_nanos=dealt_nanos,
        idle_nanos=idle_nanos,
        gpu_ms=gpu_ms,
    )


_BY_POOL: Final = f"""
WITH {COSTS_SQL},
busy AS (
    SELECT pool, hour FROM {PoolUsage._meta.db_table}
    WHERE hour >= %(begin)s AND hour < %(end)s GROUP BY 1, 2 HAVING sum({UNITS_SQL}) > 0
)
SELECT pool, sum(gpu_ms), coalesce(sum(nanos) FILTER (WHERE busy.pool IS NULL), 0)
FROM costs LEFT JOIN busy USING (pool, hour) GROUP BY pool
"""  # noqa: S608 - names of ours alone
