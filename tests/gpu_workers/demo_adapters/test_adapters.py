"""The demo tenants' adapters in the repository: small, and fit for the demo model beside them."""

import json
import struct
import subprocess
from array import array
from math import prod
from pathlib import Path
from typing import Any

import pytest

from gpu_workers.demo_model import MODEL_FOLDER, MODEL_NAME
from gpu_workers.demo_model.voices import ADAPTERS_FOLDER, VOICES
from tests.support.places import ROOT
from tests.support.workers.worker_process import ENGINE_PYTHON

MOST_BYTES = 1_000_000
RANK = 16
EACH_ADAPTER = pytest.mark.parametrize("name", [voice.adapter for voice in VOICES])
BFLOAT16_EXPONENT = 0x7F80  # all ones in what is infinite or no number


@EACH_ADAPTER
def test_an_adapter_is_two_small_files(name: str) -> None:
    files = {path.name: path.stat().st_size for path in (ADAPTERS_FOLDER / name).iterdir()}
    assert set(files) == {"adapter_config.json", "adapter_model.safetensors"}
    assert sum(files.values()) <= MOST_BYTES


@EACH_ADAPTER
def test_its_configuration_is_that_of_a_plain_lora_and_names_no_path(name: str) -> None:
    config = json.loads((ADAPTERS_FOLDER / name / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA"
    assert config["base_model_name_or_path"] == MODEL_NAME
    assert (config["r"], config["lora_alpha"], config["bias"]) == (RANK, 2 * RANK, "none")
    assert config["target_modules"] == sorted({each.rsplit(".", 1)[-1] for each in linear_layers()})
    for asking in ("modules_to_save", "use_dora", "use_rslora", "lora_bias", "rank_pattern"):
        assert not config[asking]
    assert config["init_lora_weights"] is True


@EACH_ADAPTER
def test_its_tensors_are_those_of_every_linear_layer_of_the_base_but_the_last(name: str) -> None:
    expected = {}
    for layer, (out_features, in_features) in linear_layers().items():
        expected[f"base_model.model.{layer}.lora_A.weight"] = [RANK, in_features]
        expected[f"base_model.model.{layer}.lora_B.weight"] = [out_features, RANK]
    header, data = tensors_of(ADAPTERS_FOLDER / name / "adapter_model.safetensors")
    assert {tensor: entry["shape"] for tensor, entry in header.items()} == expected
    assert {entry["dtype"] for entry in header.values()} == {"BF16"}
    assert len(data) == 2 * sum(prod(shape) for shape in expected.values())


@EACH_ADAPTER
def test_its_values_are_finite_and_each_layer_learnt_something(name: str) -> None:
    header, data = tensors_of(ADAPTERS_FOLDER / name / "adapter_model.safetensors")
    for entry in header.values():
        values = array("H", data[slice(*entry["data_offsets"])])
        assert all(value & BFLOAT16_EXPONENT != BFLOAT16_EXPONENT for value in values)
        assert any(value & 0x7FFF for value in values)


@pytest.mark.engine
@pytest.mark.rare
def test_both_voices_are_heard_and_right_on_what_training_never_saw() -> None:
    if not ENGINE_PYTHON.exists():
        pytest.skip("needs the engine environment: run `make up` once")
    command = [str(ENGINE_PYTHON), "-m", "gpu_workers.demo_model.voices.evaluate"]
    judged = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert judged.returncode == 0, judged.stderr[-4000:]


def linear_layers() -> dict[str, list[int]]:
    """The base's own layers by name, with rows and columns. Its output layer is its embedding."""
    header, _ = tensors_of(MODEL_FOLDER / "model.safetensors")
    return {
        name.removesuffix(".weight"): entry["shape"]
        for name, entry in header.items()
        if len(entry["shape"]) == 2 and "embed_tokens" not in name
    }


def tensors_of(file: Path) -> tuple[dict[str, Any], bytes]:
    """The tensor table and what follows: an 8-byte length, that many bytes of JSON, the data."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    return header, content[8 + length :]
