"""PEFT's two files, in a good archive, that say or hold what is not served."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

from inference.adapters.validation.lora_config import read_config
from inference.adapters.validation.magnitudes import MOST_OF_BASE
from inference.adapters.validation.verdicts import (
    Accepted,
    Bounds,
    RefusalCode,
    Refused,
    Rejected,
    UploadRefused,
)
from tests.support.adapter_uploads.upload import (
    BASE,
    PREFIX,
    RANK,
    arrays,
    config,
    entries_of,
    files,
    raw_safetensors,
    safetensors,
    zipped,
)
from tests.support.adapter_uploads.verdict import assert_refused, assert_rejected, verdict_of

FIRST = f"{PREFIX}model.layers.0.q_proj.lora_A.weight"
FIRST_B = f"{PREFIX}model.layers.0.q_proj.lora_B.weight"
UNSUPPORTED = RefusalCode.CONFIG_UNSUPPORTED

AssertRefused = Callable[[Path, bytes, RefusalCode], Refused | Rejected]
here_and_in_the_jail = pytest.mark.parametrize(
    "is_refused",
    [assert_rejected, pytest.param(assert_refused, marks=pytest.mark.rare)],
    ids=["here", "in the jail"],
)

# What is asked for -> the keys that ask; each is refused by its key.
ASKS: dict[str, dict[str, Any]] = {
    "DoRA": {"use_dora": True},
    "biases": {"bias": "all"},
    "biases of LoRA alone": {"bias": "lora_only"},
    "a bias of B": {"lora_bias": True},
    "aLoRA": {"alora_invocation_tokens": [1, 2, 3]},
    "PiSSA": {"init_lora_weights": "pissa"},
    "a fast PiSSA": {"init_lora_weights": "pissa_niter_16"},
    "OLoRA": {"init_lora_weights": "olora"},
    "CorDA": {"init_lora_weights": "corda"},
    "LoftQ": {"init_lora_weights": "loftq"},
    "LoRA-GA": {"init_lora_weights": "lora_ga"},
    "an init of no one": {"init_lora_weights": {"path": "x"}},
    "LoftQ's bits": {"loftq_config": {"loftq_bits": 4}},
    "CorDA's files": {"corda_config": {"cache_file": "/etc/passwd"}},
    "KaSA": {"kasa_config": {"beta": 0.1}},
    "MonteCLoRA": {"monteclora_config": {"num_samples": 2}},
    "VeLoRA": {"velora_config": {"num_groups": 2}},
    "Arrow": {"arrow_config": {"top_k": 2}},
    "saved modules": {"modules_to_save": ["lm_head"]},
    "added tokens": {"trainable_token_indices": [1, 2]},
    "added tokens by name": {"trainable_token_indices": {"embed_tokens": [1]}},
    "doubled layers": {"layer_replication": [[0, 2], [1, 2]]},
    "Megatron": {"megatron_config": {"x": 1}},
    "a module to import": {"megatron_core": "os"},
    "parameters": {"target_parameters": ["experts.gate_up_proj"]},
    "QALoRA": {"use_qalora": True},
    "block-diagonal LoRA": {"use_bdlora": {"nblocks": 2}},
    "tied weights": {"ensure_weight_tying": True},
    "Conv1D": {"fan_in_fan_out": True},
    "a runtime": {"runtime_config": {"ephemeral_gpu_offload": True}},
    "another method": {"peft_type": "ADALORA"},
    "another task": {"task_type": "SEQ_CLS"},
    "a key of tomorrow": {"use_new_thing": 1},
    "a URL": {"adapter_url": "https://example.com/weights"},
    "code of its own": {"trust_remote_code": True},
    "an expression that never ends": {"rank_pattern": {"(a+)+$": 4}},
    "an expression in alphas": {"alpha_pattern": {".*": 4}},
}


@pytest.mark.parametrize("name", ASKS)
def test_a_configuration_that_asks_for_more_is_refused_by_its_key(name: str) -> None:
    changes = ASKS[name]
    with pytest.raises(UploadRefused) as refused:
        read_config(json.dumps(config(**changes)).encode())
    assert refused.value.code == UNSUPPORTED
    assert refused.value.where == next(iter(changes))


@pytest.mark.parametrize("name", ["DoRA", "PiSSA", "saved modules", "code of its own"])
def test_it_is_refused_in_the_jail(name: str, tmp_path: Path) -> None:
    changes = ASKS[name]
    data = zipped(files(settings=config(**changes)))
    assert assert_refused(tmp_path, data, UNSUPPORTED).where == next(iter(changes))


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("r", 0, "r is 0,"),
        ("r", -4, "r is -4,"),
        ("r", "4", 'r is "4",'),
        ("r", True, "r is true,"),
        ("lora_alpha", None, "lora_alpha is null,"),
        ("lora_alpha", 0, "lora_alpha is 0,"),
        ("lora_alpha", 1e300, "lora_alpha is 1e+300,"),
        ("lora_dropout", {}, "lora_dropout is {},"),
    ],
)
def test_a_number_that_cannot_be_is_told_with_what_it_has_to_be(
    key: str, value: object, told: str
) -> None:
    with pytest.raises(UploadRefused) as refused:
        read_config(json.dumps(config(**{key: value})).encode())
    assert (refused.value.code, refused.value.where) == (RefusalCode.CONFIG_INVALID, key)
    assert told in refused.value.message and "has to be" in refused.value.message


def test_where_the_bases_class_is_defined_changes_nothing() -> None:
    origin = {"parent_library": "transformers.models.llama.modeling_llama", "base_model_class": "X"}
    plain = read_config(json.dumps(config(task_type=None)).encode())
    told = config(task_type=None, auto_mapping=origin)
    assert read_config(json.dumps(told).encode()) == plain
    with pytest.raises(UploadRefused):
        read_config(json.dumps(config(auto_mapping={"AutoModel": "code.Model"})).encode())


INVALID: dict[str, bytes] = {
    "no JSON": b"{",
    "no object": b"[]",
    "no UTF-8": b'{"r": "\xff"}',
    "nested without end": b"[" * 200_000,
    "a key twice": b'{"peft_type": "LORA", "r": 4, "r": 8, "lora_alpha": 8}',
    "NaN": b'{"peft_type": "LORA", "r": 4, "lora_alpha": NaN}',
    "a number without end": b'{"r": ' + b"9" * 100_000 + b"}",
    "no rank": json.dumps(config(r=...)).encode(),
    "no method": json.dumps(config(peft_type=...)).encode(),
    "ranks that are none": json.dumps(config(rank_pattern={"q_proj": -1})).encode(),
    "patterns without end": json.dumps(
        config(rank_pattern={f"q{number}": 4 for number in range(5000)})
    ).encode(),
}


@here_and_in_the_jail
@pytest.mark.parametrize("name", INVALID)
def test_a_configuration_that_is_none_is_refused(
    name: str, is_refused: AssertRefused, tmp_path: Path
) -> None:
    is_refused(tmp_path, zipped(files(settings=INVALID[name])), RefusalCode.CONFIG_INVALID)


def entry(dtype: str, shape: list[Any], offsets: list[Any]) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def with_header(change: Callable[[dict[str, Any]], None], tail: bytes = b"") -> bytes:
    """Good tensors, of which the header tells otherwise."""
    entries, data = entries_of(arrays())
    change(entries)
    return raw_safetensors(entries, data + tail)


def first(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entries: entries[FIRST].update(changes)


def swapped(entries: dict[str, Any]) -> None:
    """Two tensors that share their bytes, and bytes of nobody's."""
    entries[FIRST]["data_offsets"] = entries[f"{PREFIX}model.layers.1.q_proj.lora_A.weight"][
        "data_offsets"
    ]


def without(name: str) -> bytes:
    tensors = arrays()
    del tensors[name]
    return safetensors(tensors)


def and_one(name: str, array: Any) -> bytes:
    return safetensors({**arrays(), name: array})


def spoiled(number: float, dtype: str = "<f4") -> bytes:
    tensors = arrays(dtype=dtype)
    last = tensors[FIRST_B]
    last[-1, -1] = numpy.float32(number).view("<u4") >> 16 if dtype == "<u2" else number
    return safetensors(tensors)


def duplicate_key() -> bytes:
    entries, data = entries_of(arrays())
    text = json.dumps(entries)
    return raw_safetensors((text[:-1] + "," + text[1:]).encode(), data)


def many_tensors() -> bytes:
    """A header of four megabytes, each entry of which is good by itself."""
    header = {
        f"t{number}": entry("F32", [1], [4 * number, 4 * number + 4]) for number in range(50_000)
    }
    return raw_safetensors(header, bytes(200_000))


class Transposed:
    """Another base's sizes: in and out are exchanged."""

    @staticmethod
    def tensors() -> bytes:
        return safetensors({name: array.T.copy() for name, array in arrays().items()})


ONE: Any = numpy.zeros((RANK, 16), "<f4")
HEADER = RefusalCode.HEADER_INVALID
TENSORS: Mapping[str, tuple[Callable[[], bytes], RefusalCode]] = {
    "nothing": (lambda: b"", HEADER),
    "a length alone": (lambda: bytes(8), HEADER),
    "a length beyond the file": (lambda: raw_safetensors({}, b"", length=10_000), HEADER),
    "a length of all bits": (lambda: raw_safetensors({}, b"", length=2**64 - 1), HEADER),
    "a header beyond its bound": (
        lambda: raw_safetensors(b"{" + b" " * (5 * 2**20) + b"}", b""),
        HEADER,
    ),
    "no JSON": (lambda: raw_safetensors(b"{]", b""), HEADER),
    "no object": (lambda: raw_safetensors([], b""), HEADER),
    "nested without end": (lambda: raw_safetensors(b'{"a":' * 200_000, b""), HEADER),
    "a number without end": (lambda: raw_safetensors(b'{"a":' + b"9" * 10**6, b""), HEADER),
    "no tensor": (lambda: raw_safetensors({"__metadata__": {}}, b""), HEADER),
    "metadata of no strings": (
        lambda: raw_safetensors({"__metadata__": {"a": [1]}}, b""),
        HEADER,
    ),
    "a name twice": (duplicate_key, HEADER),
    "a field more": (lambda: with_header(first(path="/etc/passwd")), HEADER),
    "offsets beyond the file": (lambda: with_header(first(data_offsets=[0, 2**40])), HEADER),
    "offsets below zero": (lambda: with_header(first(data_offsets=[-256, 0])), HEADER),
    "offsets that are no numbers": (lambda: with_header(first(data_offsets=[0.0, 256.0])), HEADER),
    "offsets that overlap": (lambda: with_header(swapped), HEADER),
    "offsets that leave a gap": (lambda: with_header(lambda entries: entries.pop(FIRST)), HEADER),
    "bytes behind the tensors": (lambda: with_header(lambda _: None, b"tail"), HEADER),
    "a shape that is not its size": (lambda: with_header(first(shape=[RANK, 17])), HEADER),
    "a shape that overflows": (lambda: with_header(first(shape=[2**31, 2**31])), HEADER),
    "a shape of many dimensions": (lambda: with_header(first(shape=[2] * 6)), HEADER),
    "a shape of no numbers": (lambda: with_header(first(shape=[True, 64])), HEADER),
    "rank 0": (lambda: with_header(first(shape=[0, 16], data_offsets=[0, 0])), HEADER),
    "integers": (lambda: with_header(first(dtype="I32")), RefusalCode.TENSOR_DTYPE),
    "eight bits": (lambda: with_header(first(dtype="F8_E4M3")), RefusalCode.TENSOR_DTYPE),
    "doubles": (lambda: with_header(first(dtype="F64")), RefusalCode.TENSOR_DTYPE),
    "a type that is none": (lambda: with_header(first(dtype=["F32"])), RefusalCode.TENSOR_DTYPE),
    "tensors without end": (many_tensors, RefusalCode.TENSOR_UNSUPPORTED),
    "NaN": (lambda: spoiled(numpy.nan), RefusalCode.TENSOR_NOT_FINITE),
    "infinity": (lambda: spoiled(numpy.inf), RefusalCode.TENSOR_NOT_FINITE),
    "NaN in F16": (lambda: spoiled(numpy.nan, "<f2"), RefusalCode.TENSOR_NOT_FINITE),
    "infinity in F16": (lambda: spoiled(-numpy.inf, "<f2"), RefusalCode.TENSOR_NOT_FINITE),
    "NaN in BF16": (lambda: spoiled(numpy.nan, "<u2"), RefusalCode.TENSOR_NOT_FINITE),
    "infinity in BF16": (lambda: spoiled(-numpy.inf, "<u2"), RefusalCode.TENSOR_NOT_FINITE),
    "A without B": (lambda: without(FIRST_B), RefusalCode.TENSOR_UNPAIRED),
    "B without A": (lambda: without(FIRST), RefusalCode.TENSOR_UNPAIRED),
    "DoRA's magnitudes": (
        lambda: and_one(FIRST.replace("lora_A.weight", "lora_magnitude_vector"), ONE),
        RefusalCode.TENSOR_UNSUPPORTED,
    ),
    "an embedding": (
        lambda: and_one(f"{PREFIX}model.embed_tokens.lora_embedding_A", ONE),
        RefusalCode.TENSOR_UNSUPPORTED,
    ),
    "weights of the base": (
        lambda: and_one(f"{PREFIX}lm_head.base_layer.weight", ONE),
        RefusalCode.TENSOR_UNSUPPORTED,
    ),
    "a bias": (
        lambda: and_one(FIRST.replace("weight", "bias"), ONE),
        RefusalCode.TENSOR_UNSUPPORTED,
    ),
    "a name without PEFT's prefix": (
        lambda: and_one("model.layers.0.q_proj.lora_A.weight", ONE),
        RefusalCode.TENSOR_UNSUPPORTED,
    ),
    "a name that is a path": (lambda: and_one("/etc/passwd", ONE), RefusalCode.TENSOR_UNSUPPORTED),
    "a layer that the base has not": (
        lambda: and_one(f"{PREFIX}model.layers.2.q_proj.lora_A.weight", ONE),
        RefusalCode.WRONG_BASE,
    ),
    "a module that is not taken": (
        lambda: and_one(f"{PREFIX}lm_head.lora_A.weight", ONE),
        RefusalCode.WRONG_BASE,
    ),
    "another base's sizes": (Transposed.tensors, RefusalCode.WRONG_BASE),
    "a rank beyond the base's": (lambda: safetensors(arrays(rank=17)), RefusalCode.RANK),
    "another rank than is told": (
        lambda: safetensors(arrays(rank=8)),
        RefusalCode.RANK_MISMATCH,
    ),
}


@here_and_in_the_jail
@pytest.mark.parametrize("name", TENSORS)
def test_hostile_tensors_are_refused(name: str, is_refused: AssertRefused, tmp_path: Path) -> None:
    build, code = TENSORS[name]
    is_refused(tmp_path, zipped(files(tensors=build())), code)


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


def test_a_rank_beyond_the_tiers_is_refused(tmp_path: Path) -> None:
    data = zipped(files())
    assert_refused(tmp_path, data, RefusalCode.RANK, Bounds(max_rank=RANK - 1))


def test_another_base_is_refused_with_the_module_and_the_shape_that_was_expected(
    tmp_path: Path,
) -> None:
    narrow = arrays()
    narrow[FIRST] = numpy.zeros((RANK, 8), "<f4")
    refused = assert_refused(
        tmp_path, zipped(files(tensors=safetensors(narrow))), RefusalCode.WRONG_BASE
    )
    assert refused.where == "model.layers.0.q_proj"
    assert str([RANK, 16]) in refused.message
    assert str([RANK, 8]) in refused.message


def test_no_refusal_repeats_more_of_an_upload_than_a_line(tmp_path: Path) -> None:
    name = "\x1b[31m" + "Ω" * 5000
    refused = assert_refused(
        tmp_path, zipped(files(tensors=and_one(name, ONE))), RefusalCode.TENSOR_UNSUPPORTED
    )
    assert refused.message.isascii()
    assert refused.message.isprintable()
    assert len(refused.message) < 500
