"""Numbers that are finite where they lie, and too large for what computes with them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import numpy
import pytest

from inference.adapters.validation.magnitudes import MOST_OF_BASE
from inference.adapters.validation.verdicts import Accepted, RefusalCode, Refused
from tests.support.adapter_uploads.upload import (
    BASE,
    FIRST,
    FIRST_B,
    RANK,
    arrays,
    config,
    files,
    safetensors,
    spoiled,
    zipped,
)
from tests.support.adapter_uploads.verdict import (
    AssertRefused,
    assert_refused,
    here_and_in_the_jail,
    verdict_of,
)


def scaled(half: str, factor: float, dtype: str = "<f4") -> bytes:
    """Good tensors but for one module's half, which is so many times as large."""
    tensors = arrays()
    name = FIRST.replace("lora_A", half)
    numbers = tensors[name] * numpy.float32(factor)
    tensors[name] = (
        (numbers.view("<u4") >> 16).astype("<u2") if dtype == "<u2" else numbers.astype(dtype)
    )
    return safetensors(tensors)


HUGE: Mapping[str, Callable[[], dict[str, bytes]]] = {
    "A beyond float16": lambda: files(tensors=scaled("lora_A", 1e5)),
    "A that adds up": lambda: files(tensors=scaled("lora_A", 300)),
    "A beyond the squares of float32": lambda: files(tensors=scaled("lora_A", 1e30)),
    "A of BF16": lambda: files(tensors=scaled("lora_A", 1e30, "<u2")),
    "A of F16": lambda: files(tensors=scaled("lora_A", 1e4, "<f2")),
    "B beyond float16": lambda: files(tensors=scaled("lora_B", 1e5)),
    "B that adds up": lambda: files(tensors=scaled("lora_B", 100)),
    "B of BF16": lambda: files(tensors=scaled("lora_B", 1e30, "<u2")),
    "one number of B": lambda: files(tensors=spoiled(3e38)),
    "one number of B in BF16": lambda: files(tensors=spoiled(-3e38, "<u2")),
    "alpha": lambda: files(settings=config(lora_alpha=1_000_000)),
    "alpha of one module": lambda: files(
        settings=config(alpha_pattern={"layers.0.q_proj": 1_000_000})
    ),
    "alpha that a rank's root divides": lambda: files(
        settings=config(lora_alpha=200, use_rslora=True)
    ),
    "alpha that hides a small B": lambda: files(
        tensors=scaled("lora_B", 1e5), settings=config(lora_alpha=0.001)
    ),
}


@here_and_in_the_jail
@pytest.mark.parametrize("name", HUGE)
def test_numbers_that_half_precision_does_not_hold_are_refused_by_their_module(
    name: str, is_refused: AssertRefused, tmp_path: Path
) -> None:
    """They become infinite, then NaN, and a block of the KV cache carries that to the next one."""
    data = zipped(HUGE[name]())
    assert is_refused(tmp_path, data, RefusalCode.TENSOR_TOO_LARGE).where.startswith("model.")


def test_what_is_refused_as_too_large_names_the_module(tmp_path: Path) -> None:
    data = zipped(files(tensors=scaled("lora_A", 300)))
    refused = assert_refused(tmp_path, data, RefusalCode.TENSOR_TOO_LARGE)
    assert refused.where == "model.layers.0.q_proj"


@pytest.mark.parametrize(("part_of_most", "is_taken"), [(0.99, True), (1.01, False)])
def test_a_change_beyond_a_multiple_of_the_bases_own_weights_is_refused_with_the_figure(
    part_of_most: float, is_taken: bool, tmp_path: Path
) -> None:
    scale = config()["lora_alpha"] / RANK
    a, b = arrays()[FIRST], arrays()[FIRST_B]
    change = scale * float(numpy.linalg.norm(a)) * float(numpy.linalg.norm(b))
    first, *others = BASE.modules
    first = msgspec.structs.replace(first, norm=change / MOST_OF_BASE / part_of_most)
    base = msgspec.structs.replace(BASE, modules=[first, *others])
    verdict = verdict_of(tmp_path, zipped(files()), base=base)
    if is_taken:
        assert isinstance(verdict, Accepted), verdict
        return
    assert isinstance(verdict, Refused), verdict
    assert (verdict.code, verdict.where) == (RefusalCode.TENSOR_TOO_LARGE, first.name)
    assert f"is {part_of_most * MOST_OF_BASE:.3g} times the norm of the base's" in verdict.message


@pytest.mark.parametrize(
    ("half", "factor"), [("lora_A", 10), ("lora_B", 10), ("lora_A", 1e-30), ("lora_B", 1e-38)]
)
def test_what_is_large_and_fits_is_taken(half: str, factor: float, tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, zipped(files(tensors=scaled(half, factor))))
    assert isinstance(verdict, Accepted), verdict
