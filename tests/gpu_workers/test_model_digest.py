"""What tells one model from another before 100 GB of it are read."""

import json
import shutil
from pathlib import Path

import pytest

from gpu_workers.config import DEMO_MODEL_PATH
from gpu_workers.model_digest import digest_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO_MODEL_PATH, tmp_path / "model"))


def test_the_same_files_have_the_same_digest_wherever_they_lie(model: Path) -> None:
    assert digest_of(model) == digest_of(DEMO_MODEL_PATH)
    assert digest_of(model).startswith("sha256:")
    (model / "README.md").write_text("Of one node alone.")
    (model / "pytorch_model.bin").write_bytes(b"the same weights once more")
    assert digest_of(model) == digest_of(DEMO_MODEL_PATH)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_another_configuration_or_tokenizer_is_another_model(model: Path, name: str) -> None:
    described = json.loads((model / name).read_text())
    (model / name).write_text(json.dumps(described | {"changed": True}))
    assert digest_of(model) != digest_of(DEMO_MODEL_PATH)


@pytest.mark.parametrize("place", [0.0, 0.3, 0.999])
def test_weights_of_the_same_shape_that_were_trained_further_are_another_model(
    model: Path, place: float
) -> None:
    """Training changes weights everywhere; here it changes a fiftieth of them."""
    path = model / "model.safetensors"
    data = bytearray(path.read_bytes() * 4)
    path.write_bytes(data)
    before = digest_of(model)
    at = int(place * (len(data) - len(data) // 50))
    for index in range(at, min(len(data), at + len(data) // 50)):
        data[index] ^= 1
    path.write_bytes(data)
    assert digest_of(model) != before


def test_a_folder_without_a_model_has_none(tmp_path: Path) -> None:
    assert digest_of(tmp_path) == ""
