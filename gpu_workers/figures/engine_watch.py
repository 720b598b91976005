"""How an engine does, from what it counts since its start: of most, the last minute's."""

from collections import deque
from collections.abc import Callable
from typing import Final

from gpu_workers.engine import EngineStats
from gpu_workers.protocol.figures import EngineFigures

LOOK_EVERY_SECONDS: Final = 1.0
WINDOW_SECONDS: Final = 60.0


class EngineWatch:
    """`stats` is asked at most once a second. `adapters` returns how many are in slots and in
    memory, None of an engine that has none."""

    def __init__(
        self,
        stats: Callable[[], EngineStats],
        adapters: Callable[[], tuple[int, int] | None],
    ) -> None:
        self._stats = stats
        self._adapters = adapters
        self._looks: deque[tuple[float, EngineStats]] = deque()
        self._figures: EngineFigures | None = None

    def figures(self, now: float) -> EngineFigures:
        """Return the figures, up to a second old; `now` is in seconds of a monotonic clock."""
        if self._figures is None or now - self._looks[-1][0] >= LOOK_EVERY_SECONDS:
            self._figures = self._look(now)
        return self._figures

    def _look(self, now: float) -> EngineFigures:
        stats = self._stats()
        self._looks.append((now, stats))
        # The first that is kept is from before the window, so that all of it is counted.
        while len(self._looks) > 1 and self._looks[1][0] <= now - WINDOW_SECONDS:
            self._looks.popleft()
        before = self._looks[0][1]
        slots, memory = self._adapters() or (None, None)
        return EngineFigures(
            kv_used=_rounded(stats.kv_used),
            batch_used=_rounded(stats.batch_used),
            step_us=stats.step_us,
            prefix_asked_tokens=_more(before.prefix_asked_tokens, stats.prefix_asked_tokens),
            prefix_hit_tokens=_more(before.prefix_hit_tokens, stats.prefix_hit_tokens),
            preemptions=_more(before.preemptions, stats.preemptions),
            drafted_tokens=_more(before.drafted_tokens, stats.drafted_tokens),
            accepted_tokens=_more(before.accepted_tokens, stats.accepted_tokens),
            adapters_in_slots=slots,
            adapters_in_memory=memory,
        )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _more(before: int | None, now: int | None) -> int | None:
    """Return by how much a count has grown; all of it where it was not told before."""
    return None if now is None else now - (before or 0)
