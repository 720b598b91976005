"""The steps of the last seconds, as an engine notes them."""

import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Final

STEPS_KEPT: Final = 512
SECONDS_KEPT: Final = 5.0


class RecentSteps:
    """One engine's last steps; `clock` is in seconds."""

    def __init__(self, *, most_sequences: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_sequences = most_sequences
        self._clock = clock
        # When each ended, how long it took, how many sequences it had.
        self._steps: deque[tuple[float, float, int]] = deque(maxlen=STEPS_KEPT)
        self._began_at: float | None = None

    def begins(self) -> None:
        self._began_at = self._clock()

    def ends(self, sequences: int) -> None:
        """Note that the step which began last had so many sequences, and is over."""
        if self._began_at is not None:
            now = self._clock()
            self._steps.append((now, now - self._began_at, sequences))
        self._began_at = None

    @property
    def median_us(self) -> int | None:
        """Return the median duration in microseconds; None where there was no step."""
        recent = self._recent()
        return round(median(seconds for _, seconds, _ in recent) * 1e6) if recent else None

    @property
    def batch_used(self) -> float:
        """Return the mean share of the batch's sequences; 0 while the engine is idle."""
        recent = self._recent()
        if not recent:
            return 0.0
        return min(1.0, sum(each for *_, each in recent) / len(recent) / self._most_sequences)

    def _recent(self) -> list[tuple[float, float, int]]:
        since = self._clock() - SECONDS_KEPT
        return [each for each in self._steps if each[0] > since]
