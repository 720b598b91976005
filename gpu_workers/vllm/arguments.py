"""A worker's settings as vLLM's own command line and environment.

Going through vLLM's parser gives every argument that we do not name the default of vLLM's own
server, so that the two answer alike. Imports no vLLM: the environment must be set before.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import MutableMapping
from importlib import metadata
from pathlib import Path
from typing import Final

import structlog

from gpu_workers.config import WorkerConfig
from gpu_workers.vllm.adapters.worker_extension import EXTENSION

CPU_KV_CACHE_GIB: Final = "1"
CPU_INFO: Final = Path("/proc/cpuinfo")
# Whoever compiles at run time, and where in our folder he keeps it. By their own defaults some of
# these lie under /tmp and are lost with it.
_COMPILE_CACHES: Final = {
    "VLLM_CACHE_ROOT": "vllm",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
}

_log = structlog.get_logger("gpu_workers.vllm.arguments")


def set_environment(config: WorkerConfig, environ: MutableMapping[str, str]) -> None:
    """Set what vLLM reads from the environment when it is imported; the operator's own values win,
    except for the start method of its processes."""
    environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # children must import; see process_tree
    environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    environ.setdefault("DO_NOT_TRACK", "1")
    environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    environ.setdefault("VLLM_CPU_KVCACHE_SPACE", CPU_KV_CACHE_GIB)
    if Path(config.model_path).is_dir():
        environ.setdefault("HF_HUB_OFFLINE", "1")
    _keep_what_is_compiled(config, environ)
    if is_eager(config):
        # Not even the few functions that vLLM compiles whatever it is told: the one behind
        # log-probabilities takes half a minute on a CPU, in which nobody gets a token.
        environ.setdefault("TORCH_COMPILE_DISABLE", "1")


def _keep_what_is_compiled(config: WorkerConfig, environ: MutableMapping[str, str]) -> None:
    """Name the folders of all compilers. Raises `ValueError` if the one of the settings cannot be
    made; without a setting their own defaults stand then."""
    try:
        folder = compile_cache(config)
    except OSError as error:
        if config.compile_cache is not None:
            raise ValueError(f"PENSTOCK_WORKER_COMPILE_CACHE cannot be made: {error}") from error
        _log.warning("compile_cache_not_kept", reason=str(error))
        return
    for variable, name in _COMPILE_CACHES.items():
        environ.setdefault(variable, str(folder / name))


def compile_cache(config: WorkerConfig) -> Path:
    """Return the folder of what was compiled for this model by this vLLM, and make it: readable by
    us alone, since what lies there is run."""
    root = config.compile_cache or Path("var") / "compile-cache"
    digest = hashlib.sha256(config.model_path.encode()).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", config.model).strip(".-") or "model"
    folder = root.absolute() / f"vllm-{_installed_version()}" / f"{name}-{digest}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _installed_version() -> str:
    """Return vLLM's version without importing it; its build for the CPU has another name."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def command_line(config: WorkerConfig) -> list[str]:
    """Return the arguments of vLLM's server that start the same engine. Raises `ValueError` for
    settings that no engine can have together."""
    arguments = {
        "model": config.model_path,
        "served-model-name": config.model,
        "tensor-parallel-size": config.tensor_parallel_size,
        "pipeline-parallel-size": config.pipeline_parallel_size,
        "dtype": weights_type(config),
        "quantization": config.quantization,
        "kv-cache-dtype": config.kv_cache_dtype,
        "max-num-seqs": config.max_num_seqs,
        "max-num-batched-tokens": config.max_num_batched_tokens,
        "max-model-len": config.max_model_len,
        "gpu-memory-utilization": config.gpu_memory_utilization,
        "tool-call-parser": config.tool_call_parser,
        "reasoning-parser": config.reasoning_parser,
        "speculative-config": config.speculative_config and json.dumps(config.speculative_config),
        "scheduling-policy": "priority",
    }
    line = [f"--{name}={value}" for name, value in arguments.items() if value is not None]
    line.append("--enable-prefix-caching")
    if config.tool_call_parser is not None:
        line.append("--enable-auto-tool-choice")
    if is_eager(config):
        line.append("--enforce-eager")
    return line + _adapter_arguments(config)


def _adapter_arguments(config: WorkerConfig) -> list[str]:
    """Return what makes an engine for LoRA adapters: nothing for a pool without. Raises
    `ValueError` for a type that vLLM's kernels for adapters stop at, on a GPU."""
    if not config.adapter_slots:
        return []
    if config.dtype == "float32" and _has_gpu():
        raise ValueError(
            "PENSTOCK_DTYPE=float32 cannot serve adapters on a GPU, where vLLM computes them in"
            " float16 or bfloat16: name one of these, or set PENSTOCK_ADAPTER_SLOTS=0"
        )
    in_memory = config.adapters_in_memory or config.adapter_slots
    return [
        "--enable-lora",
        f"--max-loras={config.adapter_slots}",
        f"--max-cpu-loras={in_memory}",
        f"--max-lora-rank={config.adapter_max_rank}",
        f"--worker-extension-cls={EXTENSION}",
        "--lora-target-modules",
        *config.adapter_target_modules,
    ]


def is_eager(config: WorkerConfig) -> bool:
    """Return whether nothing is compiled: on a CPU that takes half a minute and gains little."""
    return config.enforce_eager if config.enforce_eager is not None else not _has_gpu()


def weights_type(config: WorkerConfig, cpu_info: Path = CPU_INFO) -> str:
    """Return vLLM's --dtype. On a CPU without bfloat16 instructions, float32 makes a step of 64
    sequences of the demo model four times faster (24 against 91 ms on two cores with AVX2)."""
    if config.dtype != "auto" or _has_gpu() or not cpu_info.is_file():
        return config.dtype
    return "auto" if "bf16" in cpu_info.read_text() else "float32"


def _has_gpu() -> bool:
    """Look for a GPU without importing torch."""
    return bool(shutil.which("nvidia-smi")) and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
