"""What vLLM's scheduler reports of its queue after each step."""

import time
from collections import deque
from typing import Any, Final

from vllm.v1.metrics.loggers import StatLoggerBase

from gpu_workers.vllm.structures.step_guard import StepGuard

# Whatever waits for so many steps waits for room, and not for the next step.
STEPS_KEPT: Final = 16


class StepStats(StatLoggerBase):  # type: ignore[misc]  # vLLM is not seen here
    """One vLLM engine's last steps. Made by vLLM, which calls `record` after each of them.
    The guard hears of each too."""

    def __init__(self, vllm_config: Any, guard: StepGuard) -> None:
        self._guard = guard
        self.running = 0
        self.steps = 0
        self.generated_tokens = 0
        self._waiting: deque[int] = deque(maxlen=STEPS_KEPT)

    @property
    def waiting(self) -> int:
        """Return how many requests the scheduler has had no room for in each of the last steps."""
        return min(self._waiting) if len(self._waiting) == STEPS_KEPT else 0

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        if iteration_stats is not None:
            self.generated_tokens += iteration_stats.num_generation_tokens
        if scheduler_stats is not None:
            self.steps += 1
            self.running = scheduler_stats.num_running_reqs
            self._waiting.append(
                scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
            )
            tokens = 0 if iteration_stats is None else iteration_stats.num_generation_tokens
            # Who gains no token is at its prompt.
            self._guard.step(time.monotonic(), has_prompt=tokens < self.running)

    def log_engine_initialized(self) -> None:
        """Do nothing: vLLM calls this, and there is nothing to log."""
