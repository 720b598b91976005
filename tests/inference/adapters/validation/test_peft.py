"""What PEFT saves is taken, and what is stored of it means the same to PEFT and to vLLM."""

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpu_workers.protocol.adapters import AdapterBase, BaseModule
from inference.adapters.validation.validator import validate
from inference.adapters.validation.verdicts import Accepted, Bounds
from tests.support.adapter_uploads.upload import upload, zipped
from tests.support.places import ROOT
from tests.support.workers.worker_process import ENGINE_PYTHON

pytestmark = [pytest.mark.engine, pytest.mark.rare]

PLAIN = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "all linear layers": {"r": 8, "lora_alpha": 8, "target_modules": "all-linear"},
    "rank-stabilized": {**PLAIN, "use_rslora": True},
    "an expression": {**PLAIN, "target_modules": r".*\.1\.self_attn\.(q|k)_proj"},
    "patterns": {
        **PLAIN,
        "use_rslora": True,
        "rank_pattern": {"^model.layers.0.self_attn.q_proj": 2, "v_proj": 6},
        "alpha_pattern": {"layers.1.self_attn.v_proj": 5, "q_proj": 3},
    },
    "an orthogonal init": {**PLAIN, "init_lora_weights": "orthogonal"},
}


def ask_peft(verb: str, folder: Path, settings: dict[str, Any] | None = None) -> Any:
    done = subprocess.run(
        [
            str(ENGINE_PYTHON),
            str(ROOT / "tests/support/adapter_uploads/peft_adapter.py"),
            verb,
            str(folder),
        ],
        input=json.dumps(settings),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def unpack(stored: Path, folder: Path) -> None:
    """As a worker's cache does."""
    folder.mkdir()
    data = stored.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    config = json.loads(data[8 : 8 + size])["__metadata__"]["adapter_config"]
    (folder / "adapter_config.json").write_text(config)
    (folder / "adapter_model.safetensors").write_bytes(data)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_stored_answers_as_what_was_trained(name: str, tmp_path: Path) -> None:
    if not ENGINE_PYTHON.exists():
        pytest.skip("the engine's environment is not there")
    trained = ask_peft("make", tmp_path / "trained", SETTINGS[name])
    base = AdapterBase(
        model="llama-tiny",
        digest="0" * 64,
        max_rank=16,
        modules=[
            BaseModule(name=module, in_features=sizes[0], out_features=sizes[1])
            for module, sizes in trained["modules"].items()
        ],
    )
    data = zipped({path.name: path.read_bytes() for path in (tmp_path / "trained").iterdir()})
    verdict = validate(upload(tmp_path, data), tmp_path, base, Bounds())
    assert isinstance(verdict, Accepted), verdict
    unpack(verdict.path, tmp_path / "unpacked")
    served = ask_peft("answer", tmp_path / "unpacked")
    assert served["logits"] == trained["logits"]
    assert {module: of[0] for module, of in served["scales"].items()} == {
        module: of[0] for module, of in trained["scales"].items()
    }
    assert {of[0] == pytest.approx(of[1]) for of in served["scales"].values()} == {True}
