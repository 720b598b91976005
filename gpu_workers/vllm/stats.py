"""What vLLM's scheduler reports after each step: of its queue, and of how it does."""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from vllm.v1.metrics.loggers import StatLoggerBase

from gpu_workers.engine import EngineStats
from gpu_workers.figures.steps import RecentSteps
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
        self.kv_used: float | None = None
        self.recent = RecentSteps(most_sequences=vllm_config.scheduler_config.max_num_seqs)
        self.preemptions = 0
        self.prefix_asked_tokens = 0
        self.prefix_hit_tokens = 0
        self.drafted_tokens = 0
        self.accepted_tokens = 0
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
            self.preemptions += getattr(iteration_stats, "num_preempted_reqs", 0)
        if scheduler_stats is not None:
            self.steps += 1
            self._note(scheduler_stats)
            self.running = scheduler_stats.num_running_reqs
            self._waiting.append(
                scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
            )
            tokens = 0 if iteration_stats is None else iteration_stats.num_generation_tokens
            # Who gains no token is at its prompt.
            self._guard.step(time.monotonic(), has_prompt=tokens < self.running)

    def _note(self, scheduler_stats: Any) -> None:
        """Take over how the engine does. `running` is still what the step before left."""
        running = scheduler_stats.num_running_reqs
        self.recent.ends(max(self.running, running))
        if running:
            self.recent.begins()
        # A vLLM without these is served all the same, with less to show.
        self.kv_used = getattr(scheduler_stats, "kv_cache_usage", None)
        prefix = getattr(scheduler_stats, "prefix_cache_stats", None)
        if prefix is not None:
            self.prefix_asked_tokens += prefix.queries
            self.prefix_hit_tokens += prefix.hits
        drafts = getattr(scheduler_stats, "spec_decoding_stats", None)
        if drafts is not None:
            self.drafted_tokens += drafts.num_draft_tokens
            self.accepted_tokens += drafts.num_accepted_tokens

    def log_engine_initialized(self) -> None:
        """Do nothing: vLLM calls this, and there is nothing to log."""


def engine_stats(
    engines: Sequence[StepStats], *, has_prefix_cache: bool, drafts: bool, is_idle: bool
) -> EngineStats:
    """Return how all engines of a worker do together, the KV cache of the fullest and the steps of
    the slowest. While they are idle that is free: no step reports the end of the last request."""
    if not engines:
        return EngineStats()
    used = [each.kv_used for each in engines if each.kv_used is not None]
    steps = [each.recent.median_us for each in engines if each.recent.median_us is not None]

    def total(name: str, *, is_told: bool = True) -> int | None:
        return sum(getattr(each, name) for each in engines) if is_told else None

    return EngineStats(
        kv_used=0.0 if is_idle else max(used, default=None),
        batch_used=sum(each.recent.batch_used for each in engines) / len(engines),
        step_us=max(steps, default=None),
        preemptions=total("preemptions"),
        prefix_asked_tokens=total("prefix_asked_tokens", is_told=has_prefix_cache),
        prefix_hit_tokens=total("prefix_hit_tokens", is_told=has_prefix_cache),
        drafted_tokens=total("drafted_tokens", is_told=drafts),
        accepted_tokens=total("accepted_tokens", is_told=drafts),
    )
