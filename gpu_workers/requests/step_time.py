"""The duration of an engine's steps, measured from outside: by what its fastest request gained, and
by how long it made none while it had requests."""

import math
from collections.abc import Iterable
from typing import Final

from gpu_workers.engine import EngineLoad
from gpu_workers.transport import Progress

# What took long once may take long again, on a machine that is three times as busy.
LONGEST_STEPS: Final = 3.0
# Of the time between two looks, what counts: whoever looks late was kept from it himself, and the
# engine perhaps with him.
MOST_BETWEEN_LOOKS_SECONDS: Final = 2.0


class StepTime:
    """Measured between two looks at the open requests. A request that decodes all the time gains a
    token for each of its sequences at each step; with speculation more, and this is the time per
    token."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._loading_seconds = 0.0
        self._tokens: dict[tuple[str, int], int] = {}

    def measure(
        self, progress: Iterable[Progress], now: float, *, loading_seconds: float = 0.0
    ) -> int:
        """Return the microseconds per step since the last call; 0 if no request decoded all the
        time, or loads took all of it.

        `now` is in seconds of a monotonic clock, `loading_seconds` as of `EngineLoad`: a worker is
        no slower for what it has to load.
        """
        tokens = {
            (each.request_id, each.attempt): math.ceil(each.completion_tokens / each.sequences)
            for each in progress
        }
        before, self._tokens = self._tokens, tokens
        looked_at, self._looked_at = self._looked_at, now
        loading, self._loading_seconds = self._loading_seconds, loading_seconds
        if looked_at is None:
            return 0
        steps = max(
            (count - before[key] for key, count in tokens.items() if key in before), default=0
        )
        stepping = max(0.0, now - looked_at - (loading_seconds - loading))
        return round(stepping / steps * 1e6) if steps > 0 else 0


class StepWatch:
    """Tells a hung engine from a slow one, in seconds of a monotonic clock. An engine is hung that
    holds requests and has made no step for `least_seconds`, and for several times its longest step
    so far. The prompt of a full context is one such step, or several where it is cut into chunks:
    the warm-up has made it, so what this model takes for it on this machine is known."""

    def __init__(self, *, least_seconds: float) -> None:
        self._least_seconds = least_seconds
        self._longest_seconds = 0.0
        self._steps = 0
        self._looked_at: float | None = None
        self.idle_seconds = 0.0

    @property
    def patience_seconds(self) -> float:
        """Return how long the engine may go without a step."""
        return max(self._least_seconds, LONGEST_STEPS * self._longest_seconds)

    @property
    def is_hung(self) -> bool:
        return self.idle_seconds > self.patience_seconds

    def look(self, load: EngineLoad, now: float) -> None:
        """Note how far the engine is; to be called about once a second."""
        looked_at, self._looked_at = self._looked_at, now
        steps, self._steps = self._steps, load.steps
        if not load.held or load.steps != steps or looked_at is None:
            self._longest_seconds = max(self._longest_seconds, self.idle_seconds)
            self.idle_seconds = 0.0
        else:
            self.idle_seconds += min(now - looked_at, MOST_BETWEEN_LOOKS_SECONDS)
