"""A worker that tells when its serving object was called and when that gave its first output.

    python -m tests.benchmarks.timed_worker

Settings as `python -m gpu_workers` takes them. Writes a line `<request id> <called> <first output>`
a request, in seconds of the machine's monotonic clock, which all its processes share.
"""

import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from gpu_workers.__main__ import main, make_engine
from gpu_workers.config import WorkerConfig
from gpu_workers.engine import BeginTexts, Engine, Output, Result
from gpu_workers.protocol.messages import Envelope


class TimedEngine:
    """The engine itself, but for the clock beside each request."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(
        self, envelope: Envelope, begin_texts: BeginTexts | None = None
    ) -> AsyncIterator[Output | Result]:
        called = time.monotonic()
        is_first = True
        async for each in self._engine.generate(envelope, begin_texts):
            if is_first:
                is_first = False
                sys.stdout.write(f"{envelope.request_id} {called} {time.monotonic()}\n")
                sys.stdout.flush()
            yield each


def timed(config: WorkerConfig) -> Engine:
    return TimedEngine(make_engine(config))


if __name__ == "__main__":
    sys.exit(main(timed))
