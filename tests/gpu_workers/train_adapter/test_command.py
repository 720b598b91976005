"""The trainer as a command, in the engine's environment: what it learns, writes and refuses."""

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpu_workers.demo_model import MODEL_FOLDER
from tests.support.places import ROOT
from tests.support.workers.worker_process import ENGINE_PYTHON

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not ENGINE_PYTHON.exists(), reason="needs the engine environment"),
]

USER: dict[str, Any] = {"role": "user", "content": "When are you open?"}
ASSISTANT: dict[str, Any] = {"role": "assistant", "content": "Monday to Friday."}
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief."}


def of(*messages: object) -> bytes:
    return json.dumps({"messages": messages}).encode()


TWO_ANSWERS = of(SYSTEM, USER, ASSISTANT | {"content": "One|Two"}, USER, ASSISTANT)
LESSONS = b"\n".join([of(USER, ASSISTANT), TWO_ANSWERS, of(USER, {**ASSISTANT, "content": "Yes."})])


def engine_python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ENGINE_PYTHON, *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def train(data: Path, out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    usual = ("--epochs", "2", "--batch", "2", "--threads", "1", "--device", "cpu")
    module = "gpu_workers.train_adapter"
    return engine_python("-m", module, "--data", data, "--out", out, *usual, *flags)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def lessons(tmp_path: Path) -> Path:
    file = tmp_path / "lessons.jsonl"
    file.write_bytes(LESSONS)
    return file


def test_the_same_data_gives_the_same_bytes_and_replaces_an_adapter(
    lessons: Path, tmp_path: Path
) -> None:
    for out in ("first", "second"):
        assert (done := train(lessons, tmp_path / out)).returncode == 0, done.stderr
    first = files_of(tmp_path / "first")
    assert set(first) == {"adapter_config.json", "adapter_model.safetensors"}
    assert files_of(tmp_path / "second") == first
    flags = ("--seed", "1", "--rank", "4", "--alpha", "8", "--targets", "v_proj,q_proj")
    assert (done := train(lessons, tmp_path / "second", *flags)).returncode == 0, done.stderr
    other = files_of(tmp_path / "second")
    config: dict[str, Any] = json.loads(other["adapter_config.json"])
    assert (config["r"], config["lora_alpha"]) == (4, 8)
    assert config["target_modules"] == ["q_proj", "v_proj"]
    tensors = other["adapter_model.safetensors"]
    (length,) = struct.unpack("<Q", tensors[:8])
    shapes = {name: each.get("shape") for name, each in json.loads(tensors[8 : 8 + length]).items()}
    assert shapes["base_model.model.model.layers.3.self_attn.v_proj.lora_A.weight"] == [4, 256]
    assert not any("mlp" in name for name in shapes)
    # Nothing unfinished or old lies beside what is there.
    assert {path.name for path in tmp_path.iterdir()} == {"lessons.jsonl", "first", "second"}


def test_answers_alone_are_learnt_by_the_bases_own_template(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_bytes(
        b"\n".join([TWO_ANSWERS, of(USER, ASSISTANT | {"weight": 0}, USER, ASSISTANT)])
    )
    module = "tests.support.training.run_encoding"
    done = engine_python("-m", module, file)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    end = "<|end|>"
    (text, learnt), (_, weighted) = outcomes["demo"]
    assert text.startswith("<|bos|><|system|>Be brief.<|end|><|user|>When are you open?<|end|>")
    assert learnt == f"One|Two{end}Monday to Friday.{end}"
    assert weighted == f"Monday to Friday.{end}"
    # An answer that the template shows otherwise later on is learnt as it is given.
    assert [learnt for _, learnt in outcomes["forgetful"]] == [
        f"One|Two{end}", f"Monday to Friday.{end}", f"Monday to Friday.{end}",
    ]  # fmt: skip
    assert f"<|assistant|>Two{end}" in outcomes["forgetful"][1][0]
    assert outcomes["picky"] == ["refused_by_template", 1]
    assert outcomes["mute"] == ["nothing_to_learn", 1]
    assert outcomes["other prompt"] == ["refused_by_template", 1]


def test_what_is_too_long_for_the_context_is_refused_by_its_line(
    lessons: Path, tmp_path: Path
) -> None:
    lessons.write_bytes(LESSONS + b"\n" + of(USER, ASSISTANT | {"content": "open " * 3000}))
    done = train(lessons, tmp_path / "out")
    assert done.returncode == 1
    assert "line 4" in done.stderr
    assert "2048" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_base_that_cannot_be_trained_on_is_a_sentence(lessons: Path, tmp_path: Path) -> None:
    (tmp_path / "mute").mkdir()
    for file in MODEL_FOLDER.iterdir():
        (tmp_path / "mute" / file.name).write_bytes(file.read_bytes())
    config = json.loads((MODEL_FOLDER / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (tmp_path / "mute" / "tokenizer_config.json").write_text(json.dumps(config))
    for flags, named in [
        (("--targets", "q_proj,lm_head"), "lm_head"),
        (("--base", str(tmp_path / "none")), "none"),
        (("--base", str(tmp_path / "mute")), "chat template"),
    ]:
        done = train(lessons, tmp_path / "out", *flags)
        assert done.returncode == 1, done.stderr
        assert named in done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "out").exists()


def test_wrong_data_and_folders_are_refused_before_torch_is_loaded(
    lessons: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "thesis.txt").write_text("All my work.")
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_bytes(b"hello")
    for data, out, named in [
        (lessons, own, "thesis.txt"),
        (lessons, lessons, "is a file"),
        (wrong, tmp_path / "new", "line 1"),
    ]:
        done = train(data, out)
        assert done.returncode == 1
        assert named in done.stderr
        assert "Traceback" not in done.stderr
    assert (own / "thesis.txt").read_text() == "All my work."


@pytest.mark.parametrize(
    "flags",
    [("--rank", "0"), ("--epochs", "-1"), ("--learning-rate", "nan"), ("--dropout", "1")],
)
def test_a_wrong_flag_is_named(lessons: Path, tmp_path: Path, flags: tuple[str, str]) -> None:
    done = train(lessons, tmp_path / "out", *flags)
    assert done.returncode == 2
    assert flags[0] in done.stderr
