"""vLLM's worker for hosts without a GPU, less what would end its engine there. Runs in a process of
the engine's, which imports it by its name (`serving`).

vLLM samples a token in every step also for a prompt of which only a piece was in it, throws that
away and winds a seeded request's generator back; but of generators only those of GPUs can be (vLLM
0.32.0, `GPUModelRunner._bookkeeping_sync`), and what that raises ends the engine. Any seeded prompt
of two tokens can get there: how much of it a step takes depends on the others.

Its kernels for LoRA adapters give one tenant's to another: see `adapters.cpu_slots`.
"""

from collections.abc import Mapping
from typing import Any

import numpy
import torch
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

from gpu_workers.vllm.adapters.cpu_slots import mend


class SeededCPUWorker(CPUWorker):  # type: ignore[misc]  # vLLM is not seen here
    """Serves seeded requests in pieces too. Another vLLM's model runner is left as it is."""

    def init_device(self) -> None:
        super().init_device()
        runner = self.model_runner
        if type(runner) is CPUModelRunner and hasattr(runner, "discard_request_mask"):
            runner.__class__ = SeededCPUModelRunner


class SeededCPUModelRunner(CPUModelRunner):  # type: ignore[misc]  # vLLM is not seen here
    """Keeps adapters apart; and what is thrown away takes no number from its request's generator,
    so none is to be given back."""

    _spared: Mapping[int, torch.Generator] = {}

    def load_lora_model(self, *arguments: Any, **options: Any) -> Any:
        model = super().load_lora_model(*arguments, **options)
        mend(self.lora_manager)
        return model

    def _sample(self, *arguments: Any, **options: Any) -> Any:
        batch = self.input_batch
        (thrown_away,) = numpy.nonzero(self.discard_request_mask.np[: batch.num_reqs])
        rows = [int(row) for row in thrown_away if int(row) in batch.generators]
        self._spared = {row: batch.generators.pop(row) for row in rows}
        return super()._sample(*arguments, **options)

    def _bookkeeping_sync(self, *arguments: Any, **options: Any) -> Any:
        books = super()._bookkeeping_sync(*arguments, **options)
        self.input_batch.generators.update(self._spared)
        self._spared = {}
        return books
