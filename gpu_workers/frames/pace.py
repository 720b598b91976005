"""How far apart the writes to a gateway are while a worker has more to do than it can: each of them
costs the worker, Redis and the gateway as much as many tokens."""

import time
from typing import Final

PACE_SECONDS: Final = 0.015
# Of the time, spent computing. The rest may be other processes' that share its cores.
BUSY_SHARE: Final = 1 / 3
LOOK_EVERY_SECONDS: Final = 0.05


class Pace:
    """Watches the CPU time of the thread that calls it. Times are seconds of a monotonic clock."""

    def __init__(self, now: float) -> None:
        self._looked_at, self._cpu_seconds = now, time.thread_time()
        self._is_busy = False

    def due(self, written_at: float, now: float) -> float | None:
        """Return when what gathers after a write is due; None at once."""
        self._look(now)
        due = written_at + PACE_SECONDS
        return due if self._is_busy and due > now else None

    def _look(self, now: float) -> None:
        passed = now - self._looked_at
        if passed < LOOK_EVERY_SECONDS:
            return
        cpu_seconds = time.thread_time()
        self._is_busy = cpu_seconds - self._cpu_seconds > BUSY_SHARE * passed
        self._looked_at, self._cpu_seconds = now, cpu_seconds
