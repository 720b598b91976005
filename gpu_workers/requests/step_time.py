"""The duration of an engine step, measured from outside by what its fastest request gained."""

import math
from collections.abc import Iterable

from gpu_workers.transport import Progress


class StepTime:
    """Measured between two looks at the open requests. A request that decodes all the time gains a
    token for each of its sequences at each step; with speculation more, and this is the time per
    token."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._tokens: dict[tuple[str, int], int] = {}

    def measure(self, progress: Iterable[Progress], now: float) -> int:
        """Return the microseconds per step since the last call; 0 if no request decoded all the
        time.

        `now` is in seconds of a monotonic clock.
        """
        tokens = {
            (each.request_id, each.attempt): math.ceil(each.completion_tokens / each.sequences)
            for each in progress
        }
        before, self._tokens = self._tokens, tokens
        looked_at, self._looked_at = self._looked_at, now
        if looked_at is None:
            return 0
        steps = max(
            (count - before[key] for key, count in tokens.items() if key in before), default=0
        )
        return round((now - looked_at) / steps * 1e6) if steps > 0 else 0
