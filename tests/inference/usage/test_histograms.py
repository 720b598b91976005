"""Quantiles of histograms, alone and added up, beside the exact ones."""

import math
from decimal import Decimal

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from inference.histograms import (
    BUCKETS,
    ERROR,
    HIGHEST_MS,
    LOWEST_MS,
    Histogram,
    bucket_of,
    value_of,
)

LATENCIES = st.floats(LOWEST_MS, HIGHEST_MS)


def exact(values: list[float], quantile: float) -> float:
    """By the nearest rank."""
    return sorted(values)[max(1, math.ceil(quantile * len(values))) - 1]


@given(
    parts=st.lists(st.lists(LATENCIES, min_size=1), min_size=1, max_size=8),
    quantile=st.floats(0, 1),
)
def test_quantiles_of_merged_histograms_are_within_the_stated_error(
    parts: list[list[float]], quantile: float
) -> None:
    merged = sum(map(Histogram.of, parts), Histogram())
    every = [value for part in parts for value in part]
    assert merged.total == len(every)
    assert merged.quantile_ms(quantile) == pytest.approx(
        exact(every, quantile), rel=ERROR * (1 + 1e-9)
    )
    assert ERROR < 0.05


@given(value=st.floats(0, 10 * HIGHEST_MS))
def test_each_value_has_its_bucket(value: float) -> None:
    bucket = bucket_of(value)
    assert 0 <= bucket < BUCKETS
    clamped = min(max(value, LOWEST_MS), HIGHEST_MS)
    assert value_of(bucket) == pytest.approx(clamped, rel=ERROR * (1 + 1e-9))


@given(counts=st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(0, 10**12 - 1)))
def test_a_histogram_is_one_number_and_comes_back_from_it(counts: dict[int, int]) -> None:
    histogram = Histogram(counts)
    assert Histogram.from_number(Decimal(histogram.as_number())) == histogram
    assert int(Decimal(histogram.as_number())) == sum(
        count * 10 ** (12 * bucket) for bucket, count in counts.items()
    )


def test_of_nothing_there_is_no_quantile() -> None:
    assert Histogram().quantile_ms(0.5) is None
    assert Histogram.from_number(None) == Histogram()


@pytest.mark.django_db
def test_postgresql_adds_histograms_up() -> None:
    parts = [Histogram.of([value, 2 * value]) for value in (0.05, 3.0, 47.0, 86_400_000.0)] * 50
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(part::numeric) FROM unnest(%s::text[]) AS part",
            [[part.as_number() for part in parts]],
        )
        assert Histogram.from_number(cursor.fetchone()[0]) == sum(parts, Histogram())
