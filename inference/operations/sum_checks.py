"""That usage is summed up rightly, for fsck: records, ledger and all sums of usage say the same.

Each comparison of a slice is one statement, so that it sees one moment of a database that is
written to.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models import Min

from gpu_workers.protocol.messages import Outcome
from inference.models import UsageRollup
from inference.models.rollup import COUNTERS
from inference.operations.slices import month_slices, span_of, tenants_of
from inference.operations.statements import ARRIVED_DAY, MADE_DAY, rows_of
from inference.usage.pools.rebuild import are_complete
from inference.usage.record_sums import ERROR_CODE_SQL, IS_ERROR_SQL
from inference.usage.rollups import BY_HOUR, OF_POOL_TENANTS

_HOURS_DAY: Final = "(hour AT TIME ZONE 'UTC')::date"
# What each source has of the counters that it has another way than as a column.
_OF_RECORDS: Final = {
    "requests": "count(*)",
    **{outcome: f"count(*) FILTER (WHERE outcome = '{outcome}')" for outcome in map(str, Outcome)},
}
_OF_ATTEMPTS: Final = {"wasted_tokens": "sum(completion_tokens)"}


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Who says what: SQL of the key's columns and, of each figure, what it is summed by. A source
    may be given several times; what it does not `know` it is not asked."""

    name: str
    table: str
    key: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, str] = field(default_factory=dict)
    others: str = "sum({})"
    knows: frozenset[str] | None = None
    has_request_id: bool = False


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """By these columns these figures are the same wherever they are kept; the first of the sources
    is the one that is right. `of` says what a difference is of. Slices are tenants, or months where
    it is `by_month`."""

    key: tuple[str, ...]
    figures: tuple[str, ...]
    sources: tuple[_Source, ...]
    of: str
    by_month: bool = False

    def problems(self, slices: Sequence[str] | None) -> Iterator[str]:
        """Yield the differences in these slices, or in all there are."""
        pairs = [
            (figure, name)
            for figure in self.figures
            for name in dict.fromkeys(each.name for each in self.sources)
            if any(_has(each, figure) for each in self.sources if each.name == name)
        ]
        parameters = span_of(slices) if self.by_month else tenants_of(slices)
        for row in rows_of(self._statement(pairs), dict(parameters)):
            for figure in self.figures:
                said = {of: int(row[_column(figure, of)]) for name, of in pairs if name == figure}
                if len(set(said.values())) > 1:
                    sums_by = ", ".join(f"{value} by {of}" for of, value in said.items())
                    yield f"{self.of.format(**row)}: {figure} are {sums_by}."

    def _statement(self, pairs: list[tuple[str, str]]) -> str:
        key, right = ", ".join(self.key), self.sources[0].name
        said = " UNION ALL ".join(map(self._said, self.sources))
        sums = ", ".join(
            f"coalesce(sum({figure}) FILTER (WHERE source = '{name}'), 0)"
            f" AS {_column(figure, name)}"
            for figure, name in pairs
        )
        differ = " OR ".join(
            f"{_column(figure, right)} <> {_column(figure, name)}"
            for figure, name in pairs
            if name != right
        )
        return (
            f"WITH said AS ({said}),"  # noqa: S608 - names of ours alone
            f" by_key AS (SELECT {key}, {sums} FROM said GROUP BY {key})"
            f" SELECT * FROM by_key WHERE {differ} ORDER BY {key}"
        )

    def _said(self, source: _Source) -> str:
        key = ", ".join(f"{source.key.get(name, name)} AS {name}" for name in self.key)
        figures = ", ".join(
            (source.figures.get(name, source.others.format(name)) if _has(source, name) else "NULL")
            + f" AS {name}"
            for name in self.figures
        )
        places = ", ".join(str(place) for place in range(2, 2 + len(self.key)))
        return (
            f"SELECT '{source.name}' AS source, {key}, {figures}"  # noqa: S608 - names of ours alone
            f" FROM {source.table} WHERE {self._slice(source)} GROUP BY {places}"
        )

    def _slice(self, source: _Source) -> str:
        if not self.by_month:
            return f"{source.key.get('tenant_id', 'tenant_id')} = ANY (%(tenants)s::uuid[])"
        day = source.key.get("day", "day")
        within = f"{day} >= %(first)s::date AND {day} < %(end)s::date"
        if source.has_request_id:
            # So that the partitions of other months are not read.
            within += " AND request_id >= %(early_id)s::uuid AND request_id < %(late_id)s::uuid"
        return within


def _has(source: _Source, figure: str) -> bool:
    return source.knows is None or figure in source.knows


def _column(figure: str, source: str) -> str:
    return f"{figure}_{source.replace(' ', '_')}"


_RECORDS: Final = _Source(
    name="records",
    table="inference_usagerecord",
    key={"day": ARRIVED_DAY},
    figures=_OF_RECORDS,
    has_request_id=True,
)
_ATTEMPTS: Final = _Source(
    name="records",
    table="inference_wastedattempt",
    key={"day": MADE_DAY},
    figures=_OF_ATTEMPTS,
    others="0",
    has_request_id=True,
)
_TENANTS: Final = _Comparison(
    key=("tenant_id", "model", "day"),
    figures=COUNTERS,
    sources=(
        _RECORDS,
        _ATTEMPTS,
        _Source(name="hourly rollups", table="inference_usagerollup", key={"day": _HOURS_DAY}),
        _Source(name="daily rollups", table="inference_dailyusage"),
        _Source(
            name="ledger",
            table="billing_ledgerentry JOIN billing_ledgertransaction AS posted"
            " ON posted.id = transaction_id AND account = 'revenue' AND kind = 'usage'",
            key={"tenant_id": "billing_ledgerentry.tenant_id"},
            figures={"cost_nanos": "-sum(nanos)"},
            knows=frozenset({"cost_nanos"}),
        ),
        # What waits to be posted.
        _Source(
            name="ledger",
            table="billing_waitingcharge",
            knows=frozenset({"cost_nanos"}),
            figures={"cost_nanos": "sum(nanos)"},
        ),
    ),
    of="Tenant {tenant_id}, model {model}, {day}",
)
_TIERS: Final = _Comparison(
    key=("tenant_id", "tier", "day"),
    figures=(*COUNTERS, *BY_HOUR),
    sources=(
        _Source(
            name="hourly rollups",
            table="inference_usagerollup",
            key={"day": _HOURS_DAY},
            figures=BY_HOUR,
        ),
        _Source(name="daily sums of tenants", table="inference_dailytenantusage"),
    ),
    of="Tenant {tenant_id}, tier {tier}, {day}",
)
_POOLS: Final = _Comparison(
    key=("pool", "model", "tier", "day"),
    figures=COUNTERS,
    sources=(
        _RECORDS,
        _ATTEMPTS,
        _Source(name="hourly sums of pools", table="inference_poolusage", key={"day": _HOURS_DAY}),
        _Source(name="daily sums of pools", table="inference_dailypoolusage"),
    ),
    of="Pool {pool}, model {model}, tier {tier}, {day}",
    by_month=True,
)
_POOL_TENANTS: Final = _Comparison(
    key=("pool", "tenant_id", "day"),
    figures=OF_POOL_TENANTS,
    sources=(
        _RECORDS,
        _Source(
            name="sums of pools by tenant",
            table="inference_pooltenantusage",
            key={"day": _HOURS_DAY},
        ),
    ),
    of="Pool {pool}, tenant {tenant_id}, {day}",
    by_month=True,
)
_ERRORS: Final = _Comparison(
    key=("tenant_id", "model", "code", "day"),
    figures=("requests",),
    sources=(
        _Source(
            name="records",
            table=f"(SELECT * FROM inference_usagerecord WHERE {IS_ERROR_SQL}) AS failed",  # noqa: S608
            key={"code": ERROR_CODE_SQL, "day": ARRIVED_DAY},
            figures=_OF_RECORDS,
            has_request_id=True,
        ),
        _Source(name="sums of errors", table="inference_errorrollup", key={"day": _HOURS_DAY}),
    ),
    of="Tenant {tenant_id}, model {model}, error {code}, {day}",
    by_month=True,
)


def sum_problems(tenants: Sequence[str] | None = None) -> Iterator[str]:
    """Find, for these tenants or all, models and days for which records, rollups and ledger differ,
    and days whose sums by tenant are not those of the hours: `manage.py rebuild_usage_sums` mends
    the latter."""
    yield from _TENANTS.problems(tenants)
    yield from _TIERS.problems(tenants)


def pool_sum_problems(months: Sequence[str] | None = None) -> Iterator[str]:
    """Find, in these months or ever, pools and days whose sums, and tenants and days whose sums of
    errors, are not those of the records. `manage.py rebuild_usage_sums` mends them."""
    oldest: Any = UsageRollup.objects.aggregate(oldest=Min("hour"))["oldest"]
    if oldest is not None and not are_complete(oldest):
        if months is not None and months[0] != month_slices()[0]:
            return
        yield (
            "Usage from before sums of pools and errors were kept is not in them: run manage.py "
            "rebuild_usage_sums."
        )
        return
    for comparison in (_POOLS, _POOL_TENANTS, _ERRORS):
        yield from comparison.problems(months)
