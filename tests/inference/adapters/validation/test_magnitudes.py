"""How large a matrix is, whatever pieces it is read in; the bound is what float16 really holds."""

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.adapters.validation.magnitudes import (
    INPUT_LENGTH,
    LARGEST,
    Magnitude,
    Measure,
    check_magnitudes,
)
from inference.adapters.validation.verdicts import UploadRefused

Matrix = Any  # a numpy array, which has no types of its own here


def measured(matrix: Matrix) -> Magnitude:
    measure = Measure("F32", matrix.shape[1])
    measure.add(numpy.ascontiguousarray(matrix, "<f4").reshape(-1).view("<u4"))
    return measure.taken()


@given(
    rows=st.integers(1, 20),
    length=st.integers(1, 20),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from(["F32", "F16", "BF16"]),
    cuts=st.lists(st.integers(0, 400), max_size=5),
)
def test_a_matrix_measures_the_same_in_any_pieces(
    rows: int, length: int, seed: int, dtype: str, cuts: list[int]
) -> None:
    numbers = numpy.random.default_rng(seed).standard_normal((rows, length)).astype("<f4")
    if dtype == "F16":
        words = numbers.astype("<f2").view("<u2")
        numbers = numbers.astype("<f2").astype("<f4")
    elif dtype == "BF16":
        words = (numbers.view("<u4") >> 16).astype("<u2")
        numbers = (words.astype("<u4") << 16).view("<f4")
    else:
        words = numbers.view("<u4")
    measure = Measure(dtype, length)
    for piece in numpy.split(words.reshape(-1), sorted(min(cut, words.size) for cut in cuts)):
        measure.add(piece)
    taken = measure.taken()
    assert taken.largest == pytest.approx(numpy.abs(numbers).max())
    assert taken.norm == pytest.approx(numpy.linalg.norm(numbers), rel=1e-5)
    assert taken.longest_row == pytest.approx(numpy.linalg.norm(numbers, axis=1).max(), rel=1e-5)


def test_what_is_taken_does_not_overflow_in_half_precision_and_a_little_more_does() -> None:
    """The worst input of its length, as vLLM computes it: A x in float32, cast, then B, cast."""
    rank, width = 4, 64
    direction = numpy.ones(width, "<f4") / numpy.sqrt(width)
    x = INPUT_LENGTH * direction
    most = numpy.float32(LARGEST / INPUT_LENGTH)
    for factor, fits in ((0.999, True), (1.01, False)):
        a: Matrix = numpy.zeros((rank, width), "<f4")
        a[0] = factor * most * direction
        b: Matrix = numpy.zeros((8, rank), "<f4")
        b[3, 0] = 1.0
        with numpy.errstate(over="ignore", invalid="ignore"):
            given = (b.astype("<f2") @ (a @ x).astype("<f2")).astype("<f2")
        assert bool(numpy.isfinite(given).all()) is fits
        try:
            check_magnitudes("q_proj", measured(a), measured(b), 1.0)
        except UploadRefused:
            assert not fits
        else:
            assert fits
