"""PEFT's two files, in a good archive, that say or hold what is not served."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest

from inference.adapters.validation.lora_config import read_config
from inference.adapters.validation.verdicts import (
    Bounds,
    RefusalCode,
    UploadRefused,
)
from tests.support.adapter_uploads.upload import (
    FIRST,
    FIRST_B,
    PREFIX,
    RANK,
    arrays,
    config,
    entries_of,
    files,
    raw_safetensors,
    safetensors,
    spoiled,
    zipped,
)
from tests.support.adapter_uploads.verdict import (
    AssertRefused,
    assert_refused,
    here_and_in_the_jail,
)

UNSUPPORTED = RefusalCode.CONFIG_UNSUPPORTED

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
