"""Frames that came before their turn: held back until what is missing has been sent again."""

import asyncio
from collections.abc import Callable
from typing import Final

from gpu_workers.protocol.messages import Frame

FILL_TIMEOUT_SECONDS: Final = 1.0
MAX_HELD_FRAMES: Final = 4096


class ReorderBuffer:
    """What one stream holds behind a gap, if it has one. `on_unfilled` is called when nobody has
    filled the gap in time, or when too much waits behind it."""

    __slots__ = ("_frames", "_on_unfilled", "_timer")

    def __init__(self, on_unfilled: Callable[[], None]) -> None:
        self._frames: dict[int, Frame] = {}
        self._on_unfilled = on_unfilled
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_gap(self) -> bool:
        return bool(self._frames)

    def put(self, frame: Frame) -> None:
        """Hold a frame back; the first one starts the clock."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FILL_TIMEOUT_SECONDS, self._on_unfilled)
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
