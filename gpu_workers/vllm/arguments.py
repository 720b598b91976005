"""A worker's settings as vLLM's own command line and environment.

Going through vLLM's parser gives every argument that we do not name the default of vLLM's own
server, so that the two answer alike. Imports no vLLM: the environment must be set before.
"""

import json
import os
import shutil
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from gpu_workers.config import WorkerConfig

CPU_KV_CACHE_GIB: Final = "1"
CPU_INFO: Final = Path("/proc/cpuinfo")


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


def command_line(config: WorkerConfig) -> list[str]:
    """Return the arguments of vLLM's server that start the same engine."""
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
    if config.enforce_eager if config.enforce_eager is not None else not _has_gpu():
        line.append("--enforce-eager")
    return line


def weights_type(config: WorkerConfig, cpu_info: Path = CPU_INFO) -> str:
    """Return vLLM's --dtype. On a CPU without bfloat16 instructions, float32 makes a step of 64
    sequences of the demo model four times faster (24 against 91 ms on two cores with AVX2)."""
    if config.dtype != "auto" or _has_gpu() or not cpu_info.is_file():
        return config.dtype
    return "auto" if "bf16" in cpu_info.read_text() else "float32"


def _has_gpu() -> bool:
    """Look for a GPU without importing torch. On a CPU, compilation takes half a minute and gains
    little."""
    return bool(shutil.which("nvidia-smi")) and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
