"""Outputs one by one, however late they are taken.

vLLM merges the outputs that a stream has not taken into one. With log probabilities that feeds
itself: the larger an output, the longer its rendering holds the loop, the more is merged meanwhile.
Measured: 10 s for three streams with 16 choices and 20 alternatives each.
"""

from collections import deque
from typing import Any

from vllm.v1.engine.output_processor import RequestOutputCollector


class _OutputsApart(RequestOutputCollector):  # type: ignore[misc]  # vLLM is not seen here
    """vLLM waits in `get` only where `get_nowait` found nothing, so what waits is never passed
    over."""

    output: Any
    waiting: deque[Any]

    def put(self, output: Any) -> None:
        if isinstance(output, Exception):
            self.waiting.clear()
            super().put(output)
        elif self.waiting or self.output is not None:
            self.waiting.append(output)
        else:
            super().put(output)

    def get_nowait(self) -> Any:
        if self.waiting and self.output is None:
            self.output = self.waiting.popleft()
        return super().get_nowait()


def keep_apart(queue: RequestOutputCollector) -> None:
    """Have a queue give out what was put into it, unmerged. An error goes before what waits.
    By its class, as vLLM makes the queue itself and its `put` may be one that no instance replaces.
    """
    queue.waiting = deque()
    queue.__class__ = _OutputsApart
