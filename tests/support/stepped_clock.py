"""Runs a module as `python -m` does, under a wall clock that signals set:

    python -m tests.support.stepped_clock gpu_workers --engine sim

SIGUSR1 sets it six hours back, SIGUSR2 six hours forward. What measures with the monotonic clock
does not notice.
"""

import runpy
import signal
import sys
import time
from types import FrameType
from typing import Final

STEP_SECONDS: Final = 6 * 3600

_steps = 0


def main() -> None:
    read_time, read_time_ns = time.time, time.time_ns
    time.time = lambda: read_time() + _steps * STEP_SECONDS
    time.time_ns = lambda: read_time_ns() + _steps * STEP_SECONDS * 1_000_000_000
    signal.signal(signal.SIGUSR1, _step)
    signal.signal(signal.SIGUSR2, _step)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _step(number: int, _frame: FrameType | None) -> None:
    global _steps
    _steps += 1 if number == signal.SIGUSR2 else -1


if __name__ == "__main__":
    main()
