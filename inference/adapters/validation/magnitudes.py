"""How far an adapter may change what a layer gives: what half precision holds, and no more than a
multiple of what the base's own weights are.

Engines hold an adapter's weights in the base's own type, B times its scale (alpha / rank; rsLoRA's
alpha / sqrt(rank)); vLLM casts what A gives to that type, too, before B has it. Float16 ends at
65504. What overflows is infinite, soon NaN, and NaN that is left in a block of the KV cache reaches
whoever gets that next; so weights that overflow for ordinary inputs are no adapter of ours.

An input x of a layer changes its outputs by (scale B) A x, each by at most the longest row of
scale B, times the Frobenius norm of A, times the length of x. A normalised input of 4,096 numbers
has a length of 64. So the norm of A, and its product with the longest row, may be 65504 / 64, some
1,000. Of adapters as they are trained the former is some 2 to 20, the latter less than 100.

What comes out must be of a size that the layers after it were made for, too. The change of a
layer's weights, scale B A, has at most the scale times the norms of B and A. That is 2.3 times the
norm of the layer's own weights for the adapters of our demo model, whose change is really 0.8
times: it is a tiny model, and they give it another voice. More than `MOST_OF_BASE` is refused.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy

from inference.adapters.validation.verdicts import RefusalCode, UploadRefused

LARGEST: Final = 65504.0
INPUT_LENGTH: Final = 64.0
MOST: Final = LARGEST / INPUT_LENGTH
MOST_OF_BASE: Final = 16.0

_DIVERGED: Final = (
    "Such training has diverged: train again, with a lower learning rate or alpha, and upload that."
)


@dataclass(frozen=True, kw_only=True)
class Magnitude:
    """The largest number of a matrix, its Frobenius norm and the length of its longest row; each
    infinite where its square is beyond float32."""

    largest: float
    norm: float
    longest_row: float


class Measure:
    """Takes a matrix in pieces as they are read, of any length."""

    def __init__(self, dtype: str, row_length: int) -> None:
        self._dtype = dtype
        self._row_length = row_length
        self._begun: Any = numpy.zeros(0, "<f4")  # the first numbers of a row
        self._largest = 0.0
        self._squares = 0.0
        self._longest = 0.0

    def add(self, words: Any) -> None:
        """Take the next numbers, finite, as the words that they are stored as."""
        numbers = _as_float32(words, self._dtype)
        if not len(numbers):
            return
        self._largest = max(self._largest, float(numpy.abs(numbers).max()))
        numbers = numpy.concatenate((self._begun, numbers))
        whole = len(numbers) // self._row_length * self._row_length
        self._begun = numbers[whole:]
        if not whole:
            return
        rows = numbers[:whole].reshape(-1, self._row_length)
        # No BLAS: that would start threads, which the jail does not allow.
        with numpy.errstate(over="ignore", under="ignore"):
            squares = numpy.einsum("ij,ij->i", rows, rows)
        self._squares += float(squares.sum(dtype="<f8"))
        self._longest = max(self._longest, float(squares.max()))

    def taken(self) -> Magnitude:
        return Magnitude(
            largest=self._largest,
            norm=math.sqrt(self._squares),
            longest_row=math.sqrt(self._longest),
        )


def check_magnitudes(module: str, a: Magnitude, b: Magnitude, scale: float) -> None:
    """Raises `UploadRefused` for a pair that half precision does not hold."""
    held = max(1.0, scale) * b.largest  # vLLM casts it before it scales it
    change = scale * b.longest_row * a.norm if b.longest_row else 0.0
    for what, has, most in (
        ("the norm of A", a.norm, MOST),
        ("the largest number of B, scaled by alpha", held, LARGEST),
        ("the longest row of B, scaled by alpha, times the norm of A", change, MOST),
    ):
        if not has <= most:
            raise UploadRefused(
                RefusalCode.TENSOR_TOO_LARGE,
                f"{module}: {what} is {has:.3g}, and may be {most:.5g}; beyond that half precision "
                f"overflows. {_DIVERGED}",
                where=module,
            )


def check_change(
    module: str, a: Magnitude, b: Magnitude, scale: float, base_norm: float | None
) -> None:
    """Raises `UploadRefused` for a pair that changes its layer by a multiple of the layer's own
    norm; nothing where that is not known."""
    if base_norm is None or not b.norm:
        return
    times = scale * a.norm * b.norm / base_norm
    if not times <= MOST_OF_BASE:
        raise UploadRefused(
            RefusalCode.TENSOR_TOO_LARGE,
            f"{module}: the norm of A times that of B, scaled by alpha, is {times:.3g} times the "
            f"norm of the base's own weights ({base_norm:.3g}), and may be {MOST_OF_BASE:g} times; "
            f"trained adapters stay far below. {_DIVERGED}",
            where=module,
        )


def _as_float32(words: Any, dtype: str) -> Any:
    match dtype:
        case "F32":
            return words.view("<f4")
        case "F16":
            return words.view("<f2").astype("<f4")
        case _:  # BF16 is the upper half of a float32
            return (words.astype("<u4") << 16).view("<f4")
