"""Latency histograms that add up: those of hours to that of any range, those of keys to that of a
tenant, and a quantile is as right in the sum as in a part.

Buckets are fixed: the first holds all up to `LOWEST_MS`, each further one reaches `GROWTH` times as
far as the one before. A quantile is reported as the point of its bucket that is at most `ERROR`
off, relatively, whatever in the bucket was measured (DDSketch, Masson et al., VLDB 2019).

In PostgreSQL a histogram is one whole number, `numeric`, in base 10^12: digit i counts bucket i. So
`sum()` merges histograms and `+` adds to one, both in C, and the empty buckets around those in use
take no space.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from django.db import models

LOWEST_MS: Final = 0.1
HIGHEST_MS: Final = 86_400_000.0  # a day; what took longer counts as that
GROWTH: Final = 1.1
ERROR: Final = (GROWTH - 1) / (GROWTH + 1)  # 4.8 %

_LOG_GROWTH: Final = math.log(GROWTH)
BUCKETS: Final = 1 + math.ceil(math.log(HIGHEST_MS / LOWEST_MS) / _LOG_GROWTH)
# Decimal digits of a bucket's count: three of PostgreSQL's own, which are of four.
_DIGITS: Final = 12


class Histogram:
    """How often each bucket was met. A value."""

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: Mapping[int, int] = {
            bucket: count for bucket, count in sorted((counts or {}).items()) if count
        }

    @classmethod
    def of(cls, values_ms: Iterable[float]) -> "Histogram":
        counts: dict[int, int] = {}
        for value in values_ms:
            bucket = bucket_of(value)
            counts[bucket] = counts.get(bucket, 0) + 1
        return cls(counts)

    @classmethod
    def from_number(cls, number: Decimal | int | None) -> "Histogram":
        """Read a histogram as PostgreSQL has it; None, a sum over no rows, is empty."""
        text = f"{Decimal(number or 0):f}"
        text = text.zfill(-(-len(text) // _DIGITS) * _DIGITS)
        empty = (len(text) - len(text.rstrip("0"))) // _DIGITS  # of the lowest buckets
        ends = range(len(text) - empty * _DIGITS, 0, -_DIGITS)
        found = cls.__new__(cls)
        found.counts = {
            bucket: count
            for bucket, end in enumerate(ends, start=empty)
            if (count := int(text[end - _DIGITS : end]))
        }
        return found

    def as_number(self) -> str:
        """Return text of the whole number, in scientific notation."""
        return as_number(self.counts)

    def __add__(self, other: "Histogram") -> "Histogram":
        if not self.counts or not other.counts:
            return self if self.counts else other
        counts = dict(self.counts)
        for bucket, count in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
        return Histogram(counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.counts == other.counts

    def __hash__(self) -> int:
        return hash(tuple(self.counts.items()))

    def __repr__(self) -> str:
        return f"Histogram({dict(self.counts)})"

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def quantile_ms(self, quantile: float) -> float | None:
        """Return what this share of all is not above, by the nearest rank; None of nothing."""
        return self.quantiles_ms([quantile])[0]

    def quantiles_ms(self, quantiles: Sequence[float]) -> list[float | None]:
        """Return each of several, in one go."""
        if not self.counts:
            return [None] * len(quantiles)
        buckets, reached = list(self.counts), list(accumulate(self.counts.values()))
        ranks = (max(1, math.ceil(quantile * reached[-1])) for quantile in quantiles)
        return [value_of(buckets[bisect_left(reached, rank)]) for rank in ranks]


def as_number(counts: Mapping[int, int]) -> str:
    """Return text of the number of a histogram with these counts by bucket, in scientific
    notation."""
    if len(counts) == 1:
        ((bucket, count),) = counts.items()
        return f"{count}e{bucket * _DIGITS}"
    if not counts:
        return "0"
    lowest, highest = min(counts), max(counts)
    digits = (f"{counts.get(bucket, 0):012d}" for bucket in range(highest, lowest - 1, -1))
    return f"{''.join(digits)}e{lowest * _DIGITS}"


@lru_cache(maxsize=65_536)
def bucket_of(value_ms: float) -> int:
    """Return the bucket of a value: i > 0 holds what is above LOWEST_MS * GROWTH^(i-1), up to
    GROWTH times that."""
    if value_ms <= LOWEST_MS:
        return 0
    bucket = math.ceil(math.log(value_ms / LOWEST_MS) / _LOG_GROWTH)
    return min(bucket, BUCKETS - 1)


def value_of(bucket: int) -> float:
    """Return what is at most `ERROR` off from everything in the bucket, in ms."""
    if bucket == 0:
        return LOWEST_MS
    return float(2 * LOWEST_MS * GROWTH**bucket / (GROWTH + 1))


def number_sql(milliseconds: str) -> str:
    """Return SQL for the number of a histogram of one value, an expression that is not null."""
    steps = f"ceil(ln(greatest({milliseconds}, {LOWEST_MS}) / {LOWEST_MS}) / ln({GROWTH}))"
    return digit_sql(f"least({BUCKETS - 1}, greatest(0, {steps}))::integer")


def digit_sql(bucket: str) -> str:
    """Return SQL for the number that counts 1 in a bucket, an expression that is not null."""
    return f"('1e' || {_DIGITS} * {bucket})::numeric"


class HistogramField(models.Field):  # type: ignore[type-arg]
    """A column of histograms; `Sum` of it is their sum."""

    description = "a latency histogram"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"default": Histogram, "editable": False, **options})

    def db_type(self, connection: Any) -> str:
        return "numeric"

    def from_db_value(self, value: Decimal | None, *_: Any) -> Histogram:
        return Histogram.from_number(value)

    def get_prep_value(self, value: Any) -> Any:
        return Decimal(value.as_number()) if isinstance(value, Histogram) else value
