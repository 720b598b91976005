"""Frames that came before their turn: held back until what is missing has been sent again."""

import asyncio
from collections.abc import Callable
from typing import Final

from gpu_workers.protocol.messages import Frame

PATIENCE_SECONDS: Final = 1.0
MOST_HELD_FRAMES: Final = 4096


class FrameGap:
    """The gap of one stream, if it has one. `on_given_up` is called when nobody has filled it in
    time, or when too much waits behind it."""

    __slots__ = ("_held", "_on_given_up", "_timer")

    def __init__(self, on_given_up: Callable[[], None]) -> None:
        self._held: dict[int, Frame] = {}
        self._on_given_up = on_given_up
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._held)

    def hold(self, frame: Frame) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PATIENCE_SECONDS, self._on_given_up)
        self._held[frame.seq] = frame
        if len(self._held) > MOST_HELD_FRAMES:
            self._on_given_up()

    def take(self, seq: int) -> Frame | None:
        """The frame whose turn it is, if it is held; the last one closes the gap."""
        frame = self._held.pop(seq, None)
        if not self._held:
            self.close()
        return frame

    def close(self) -> list[Frame]:
        """Ends the waiting; returns what is still held, in order."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held = [self._held[seq] for seq in sorted(self._held)]
        self._held.clear()
        return held
