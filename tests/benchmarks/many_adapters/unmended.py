"""An engine whose kernels for adapters are vLLM's own: the bug `unmended` of `worker`. Imported by
its name in the engine's process."""

from gpu_workers.vllm.adapters import cpu_slots
from gpu_workers.vllm.adapters.worker_extension import AdapterWorker

vars(cpu_slots)["MENDED_VERSION"] = "none"


class UnmendedWorker(AdapterWorker):
    """Says of the base what ours says."""
