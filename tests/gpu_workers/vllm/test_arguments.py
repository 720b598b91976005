"""In which type a worker's engine computes."""

from pathlib import Path

import pytest

from gpu_workers.config import WorkerConfig
from gpu_workers.vllm import arguments

REDIS = {"PENSTOCK_DISPATCH_REDIS_URL": "redis://127.0.0.1:6379"}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def cpu_info(tmp_path: Path) -> Path:
    return tmp_path / "cpuinfo"


@pytest.mark.parametrize("flags", ["flags : avx512f avx512_bf16", "Features : asimd bf16"])
def test_a_cpu_that_computes_in_bfloat16_takes_the_models_own_type(
    cpu_info: Path, flags: str
) -> None:
    cpu_info.write_text(flags)
    config = WorkerConfig.from_environ(REDIS)
    assert arguments.weights_type(config, cpu_info) == "auto"


def test_any_other_cpu_takes_float32(cpu_info: Path) -> None:
    cpu_info.write_text("flags : fma avx2")
    config = WorkerConfig.from_environ(REDIS)
    assert arguments.weights_type(config, cpu_info) == "float32"


def test_what_an_operator_names_is_taken(cpu_info: Path) -> None:
    cpu_info.write_text("flags : fma avx2")
    config = WorkerConfig.from_environ(REDIS | {"PENSTOCK_DTYPE": "bfloat16"})
    assert arguments.weights_type(config, cpu_info) == "bfloat16"
