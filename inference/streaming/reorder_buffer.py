"""Frames that came before their turn: held back until what is missing has been sent again."""

import asyncio
from collections.abc import Callable
from typing import Final

from gpu_workers.protocol.messages import Frame

ASK_AGAIN_SECONDS: Final = 1.0
# A worker answers at once, also what it keeps no longer. One that is paused answers when it goes
# on, or its lease ends.
FILL_TIMEOUT_SECONDS: Final = 30.0
MAX_HELD_FRAMES: Final = 4096


class ReorderBuffer:
    """What one stream holds behind a gap, if it has one. `on_gap` is called when there is one, and
    again from time to time; `on_unfilled` when nobody has filled it in time, or when too much waits
    behind it."""

    __slots__ = ("_frames", "_on_gap", "_on_unfilled", "_timer", "_until")

    def __init__(self, on_gap: Callable[[], None], on_unfilled: Callable[[], None]) -> None:
        self._frames: dict[int, Frame] = {}
        self._on_gap = on_gap
        self._on_unfilled = on_unfilled
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0

    @property
    def has_gap(self) -> bool:
        return bool(self._frames)

    def put(self, frame: Frame) -> None:
        """Hold a frame back; the first one starts the clock."""
        if self._timer is None:
            self._until = asyncio.get_running_loop().time() + FILL_TIMEOUT_SECONDS
            self._ask()
        self._frames[frame.seq] = frame
        if len(self._frames) > MAX_HELD_FRAMES:
            self._on_unfilled()

    def pop(self, seq: int) -> Frame | None:
        """Return the frame whose turn it is, None if it is not held; the last one ends the gap."""
        frame = self._frames.pop(seq, None)
        if not self._frames:
            self.flush()
        return frame

    def flush(self) -> list[Frame]:
        """End the waiting; return what is still held, in order."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held = [self._frames[seq] for seq in sorted(self._frames)]
        self._frames.clear()
        return held

    def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None and loop.time() >= self._until:
            self._on_unfilled()
            return
        seconds = min(ASK_AGAIN_SECONDS, FILL_TIMEOUT_SECONDS)
        self._timer = loop.call_later(seconds, self._ask)
        self._on_gap()
