"""vLLM's engine on a host without a GPU: one process, and our version of vLLM's worker in it.

vLLM runs a model on a CPU in a process beside the engine's. While requests run, each of the two
waits for the other in a loop (vLLM 0.32.0, `SpinCondition`), so the engine takes two cores to
compute on one. In one process, as with a GPU, 1,000 tokens of the demo model cost 0.21 s of CPU
instead of 0.43 (64 streams, two cores, docs/benchmarks/notes.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog

# What vLLM names for hosts without a GPU, and what is run there.
_OUR_WORKERS: Final = {
    "vllm.v1.worker.cpu_worker.CPUWorker": "gpu_workers.vllm.cpu_worker.SeededCPUWorker"
}

_log = structlog.get_logger("gpu_workers.vllm.cpu_host")


@contextmanager
def arranged(vllm_config: Any) -> Iterator[None]:
    """Arrange an engine that is started until the block ends, where its host has no GPU; elsewhere
    leave it as it is. Also left alone is an engine of several processes' work."""
    parallel = vllm_config.parallel_config
    if parallel.worker_cls not in _OUR_WORKERS:
        yield
        return
    parallel.worker_cls = _OUR_WORKERS[parallel.worker_cls]
    if parallel.world_size > 1:
        yield
        return
    try:
        from vllm.utils.ompmultiprocessing import OMPProcessManager
    except ImportError:  # of a vLLM that has it elsewhere, or nowhere
        _log.warning("engine_left_in_two_processes")
        yield
        return
    parallel.distributed_executor_backend = "uni"
    # Else read by the second process: on how many cores, and which (VLLM_CPU_OMP_THREADS_BIND)
    with OMPProcessManager(vllm_config).configure_omp_envs(rank=0, local_rank=0):
        yield
