"""What a worker's vLLM is told: in which type it computes, where it keeps what it compiles."""

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


def test_adapters_in_float32_are_refused_on_a_gpu_alone(tmp_path: Path) -> None:
    config = WorkerConfig.from_environ(
        REDIS | {"PENSTOCK_DTYPE": "float32", "PENSTOCK_ADAPTER_SLOTS": "4"}
    )
    assert "--dtype=float32" in arguments.command_line(config), "a CPU serves them"
    driver = tmp_path / "nvidia-smi"
    driver.touch(mode=0o755)
    with pytest.raises(ValueError, match="name one of these, or set PENSTOCK_ADAPTER_SLOTS=0"):
        arguments.command_line(config)


def environment(tmp_path: Path, **settings: str) -> dict[str, str]:
    config = WorkerConfig.from_environ(
        REDIS | {"PENSTOCK_WORKER_COMPILE_CACHE": str(tmp_path)} | settings
    )
    environ: dict[str, str] = {}
    arguments.set_environment(config, environ)
    return environ


def test_what_is_compiled_is_kept_for_each_model_and_version(tmp_path: Path) -> None:
    one = environment(tmp_path)
    other = environment(tmp_path, PENSTOCK_MODEL_PATH=str(tmp_path))
    caches = {name for name in one if Path(one[name]).is_relative_to(tmp_path)}
    assert {"VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"} <= caches
    assert all(one[name] == environment(tmp_path)[name] for name in caches), "found again"
    assert all(one[name] != other[name] for name in caches)
    assert all("vllm-" in one[name] for name in caches)
    folders = {Path(one[name]).parent for name in caches}
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


def test_an_operators_own_folders_win(tmp_path: Path) -> None:
    environ = {"VLLM_CACHE_ROOT": "/elsewhere"}
    config = WorkerConfig.from_environ(REDIS | {"PENSTOCK_WORKER_COMPILE_CACHE": str(tmp_path)})
    arguments.set_environment(config, environ)
    assert environ["VLLM_CACHE_ROOT"] == "/elsewhere"


def test_a_folder_that_cannot_be_made_stops_the_start_and_names_the_setting(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="PENSTOCK_WORKER_COMPILE_CACHE"):
        environment(tmp_path, PENSTOCK_WORKER_COMPILE_CACHE=str(tmp_path / "file"))


def test_nothing_is_compiled_where_compilation_is_skipped(tmp_path: Path) -> None:
    assert environment(tmp_path)["TORCH_COMPILE_DISABLE"] == "1", "without a GPU"
    compiled = environment(tmp_path, PENSTOCK_ENFORCE_EAGER="false")
    assert "TORCH_COMPILE_DISABLE" not in compiled


def test_an_engine_is_made_for_adapters_only_where_it_has_slots_for_them() -> None:
    none = arguments.command_line(WorkerConfig.from_environ(REDIS))
    assert not any("lora" in argument for argument in none)
    slots = REDIS | {"PENSTOCK_ADAPTER_SLOTS": "8", "PENSTOCK_ADAPTER_TARGET_MODULES": "q_proj"}
    line = arguments.command_line(WorkerConfig.from_environ(slots))
    assert {"--enable-lora", "--max-loras=8", "--max-cpu-loras=8"} <= set(line)
    assert line[line.index("--lora-target-modules") :] == ["--lora-target-modules", "q_proj"]
    more = WorkerConfig.from_environ(slots | {"PENSTOCK_ADAPTERS_IN_MEMORY": "64"})
    assert "--max-cpu-loras=64" in arguments.command_line(more)
