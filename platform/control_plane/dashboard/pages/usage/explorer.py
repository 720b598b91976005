"""The explorer's figures: the largest groups and what is left, over time and in sum. The database
adds up and picks; however much there is, a page reads a bounded number of rows."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any, Final

from django.db.models import F, Q, QuerySet, Sum

from control_plane.dashboard.pages.usage.measures import Measure
from control_plane.records.naming import NAMED
from control_plane.web.figures import short_id
from inference.usage.reports import NOBODY, Dimension, Granularity, UsageQuery, aggregate

# Series that a chart can part: the rest is "other", which makes the eighth.
DRAWN: Final = 7
LISTED: Final = 50
OTHER: Final = "other"
# Beside what is shown, in the table.
_ALWAYS: Final = ("requests", "prompt_tokens", "completion_tokens", "cost_nanos")

Key = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """What the rows of one group come to. `before`: the measure in as many days before."""

    key: Key
    name: str
    amount: int
    before: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost_nanos: int


class Explorer:
    """One question: a query, grouped by `query.group_by` beside the day or hour, of one measure."""

    def __init__(self, query: UsageQuery, measure: Measure) -> None:
        self.query = query
        self.measure = measure

    @cached_property
    def days(self) -> int:
        return (self.query.last - self.query.first).days + 1

    @cached_property
    def moments(self) -> list[date] | list[datetime]:
        """The days, or the beginnings of the hours, that there is a sum of each."""
        return _moments(self.query)

    @cached_property
    def query_before(self) -> UsageQuery:
        """The same question of as many days before."""
        away = timedelta(days=self.days)
        return replace(self.query, first=self.query.first - away, last=self.query.last - away)

    @cached_property
    def total(self) -> int:
        return self._sum(self.query)

    @cached_property
    def total_before(self) -> int:
        return self._sum(self.query_before)

    @cached_property
    def groups(self) -> list[Group]:
        """The largest, then by key; more than `LISTED` are not told one by one."""
        if not self._columns:
            return self._whole()
        found = list(
            self._measured(_by_day(self.query)).order_by("-measured", *self._columns)[:LISTED]
        )
        keys = [self._key(row) for row in found]
        names = self._names(keys)
        before = self._before(keys)
        return [
            Group(
                key=key,
                name=names[key],
                amount=int(row["measured"]),
                before=before.get(key, 0),
                **{name: int(row[name]) for name in _ALWAYS},
            )
            for key, row in zip(keys, found, strict=True)
        ]

    @property
    def rest(self) -> int:
        """What the groups that are not listed come to."""
        return self.total - sum(group.amount for group in self.groups)

    def over_time(self, query: UsageQuery | None = None) -> list[int]:
        """Return the measure at each moment of the query, of all groups."""
        asked = query or self.query
        rows = self._measured(replace(asked, group_by=(self._period,)))
        found = {row[self._period.column]: int(row["measured"]) for row in rows}
        return [found.get(moment, 0) for moment in _moments(asked)]

    def drawn(self) -> dict[str, list[int]]:
        """Return the measure over time of the largest groups by name, the largest first, and of
        the rest."""
        if not self._columns:
            return {group.name: self.over_time() for group in self.groups}
        largest = self.groups[:DRAWN]
        series = {group.key: dict.fromkeys(self.moments, 0) for group in largest}
        if largest:
            query = replace(self.query, group_by=(self._period, *self.query.group_by))
            for row in self._of(query, [group.key for group in largest]):
                series[self._key(row)][row[self._period.column]] = int(row["measured"])
        drawn = {group.name: list(series[group.key].values()) for group in largest}
        if len(self.groups) > DRAWN:
            told = zip(*drawn.values(), strict=True)
            drawn[OTHER] = [
                every - sum(each) for every, each in zip(self.over_time(), told, strict=True)
            ]
        return drawn

    @property
    def _period(self) -> Dimension:
        return Dimension(self.query.granularity)

    @cached_property
    def _columns(self) -> list[str]:
        return [dimension.column for dimension in self.query.group_by]

    def _key(self, row: Mapping[str, Any]) -> Key:
        return tuple(row[column] for column in self._columns)

    def _measured(self, query: UsageQuery) -> "QuerySet[Any, Any]":
        first, *more = (F(name) for name in self.measure.counters)
        measured = sum(more, start=first)
        groups: QuerySet[Any, Any] = aggregate(query, with_latencies=False).annotate(
            measured=measured
        )
        return groups

    def _sum(self, query: UsageQuery) -> int:
        rows = _by_day(query).rows()
        sums = rows.aggregate(**{name: Sum(name) for name in self.measure.counters})
        return sum(int(amount or 0) for amount in sums.values())

    def _before(self, keys: list[Key]) -> dict[Key, int]:
        rows = self._of(_by_day(self.query_before), keys) if keys else []
        return {self._key(row): int(row["measured"]) for row in rows}

    def _of(self, query: UsageQuery, keys: list[Key]) -> "QuerySet[Any, Any]":
        wanted = Q()
        for key in keys:
            wanted |= Q(**dict(zip(self._columns, key, strict=True)))
        found: QuerySet[Any, Any] = self._measured(query).filter(wanted)
        return found

    def _whole(self) -> list[Group]:
        """Return the one group of what is not split, if there is anything."""
        sums = _by_day(self.query).rows().aggregate(**{name: Sum(name) for name in _ALWAYS})
        if not sums["requests"]:
            return []
        counted = {name: int(sums[name]) for name in _ALWAYS}
        return [Group(key=(), name="all", amount=self.total, before=self.total_before, **counted)]

    def _names(self, keys: list[Key]) -> dict[Key, str]:
        """Name the groups; of two with the same name each has its id too."""
        named: dict[Key, str] = {}
        words = [
            _words(dimension, {key[place] for key in keys})
            for place, dimension in enumerate(self.query.group_by)
        ]
        for key in keys:
            parts = [words[place][value] for place, value in enumerate(key)]
            named[key] = " / ".join(parts)
        names = list(named.values())
        return {
            key: name
            if names.count(name) == 1 and name != OTHER
            else f"{name} ({', '.join(short_id(str(value)) for value in key)})"
            for key, name in named.items()
        }


def _by_day(query: UsageQuery) -> UsageQuery:
    """Return the question whose sums over the whole range are in the fewest rows."""
    return replace(query, granularity=Granularity.DAY)


def _moments(query: UsageQuery) -> list[Any]:
    days = (query.last - query.first).days + 1
    if query.granularity is Granularity.DAY:
        return [query.first + timedelta(days=place) for place in range(days)]
    midnight = datetime.combine(query.first, time.min, UTC)
    return [midnight + timedelta(hours=place) for place in range(24 * days)]


def _words(dimension: Dimension, values: set[Any]) -> dict[Any, str]:
    """Say what values of a dimension are to people; what has no name keeps its id, shortened."""
    ids = {value for value in values if isinstance(value, uuid.UUID)}
    known = NAMED[dimension.column][1](ids) if dimension.column in NAMED else {}
    if dimension is Dimension.CREATED_BY:
        known = {**known, NOBODY: "nobody's account"}
    return {value: known.get(value) or _plain(dimension, value) for value in values}


def _plain(dimension: Dimension, value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return short_id(str(value))
    return str(value) if value else f"no {dimension.value.replace('_', ' ')}"
