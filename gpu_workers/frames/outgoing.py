"""What one worker has for one gateway: the frames of the next write, and how far the gateway is
with those before."""

import asyncio
from collections import deque
from collections.abc import Iterable

from gpu_workers.protocol.messages import MAX_FRAMES_OF_A_BATCH, Frame, FrameBatch, Resend


class Outgoing:
    """Batches are numbered without gaps: `number` is that of the next one, which gathers now,
    `written` of the last that Redis has taken, `confirmed` of the last that the gateway says it
    has, with all before; those in between are `full`, or on their way. What gathers `is_urgent`, or
    can wait for the pace; `written_at` is when the last write began, by the loop's clock."""

    __slots__ = (
        "attempts",
        "awaited",
        "confirmed",
        "frames",
        "full",
        "gateway_id",
        "is_urgent",
        "number",
        "unkept",
        "write",
        "written",
        "written_at",
    )

    def __init__(self, gateway_id: str, *, after: int) -> None:
        self.gateway_id = gateway_id
        self.frames: list[Frame] = []
        self.full: deque[list[Frame]] = deque()
        self.unkept: list[Resend] = []
        self.number = after + 1
        self.written = self.confirmed = after
        self.is_urgent = False
        self.written_at = 0.0
        self.write: asyncio.Task[None] | None = None
        self.awaited: list[asyncio.Future[None]] = []
        self.attempts = 0  # of which frames are kept

    @property
    def has_any(self) -> bool:
        """Return whether there is anything to write."""
        return bool(self.frames or self.unkept or self.full)

    @property
    def waiting_frames(self) -> int:
        return len(self.frames) + MAX_FRAMES_OF_A_BATCH * len(self.full)

    @property
    def last_taken(self) -> int:
        """Return the number of the last batch that was taken out."""
        return self.number - 1 - len(self.full)

    @property
    def is_idle(self) -> bool:
        return not (self.has_any or self.write or self.attempts)

    def append(self, frame: Frame) -> None:
        """Have a frame go with the next batch."""
        self.frames.append(frame)
        if len(self.frames) == MAX_FRAMES_OF_A_BATCH:
            self.full.append(self.frames)
            self.frames, self.number = [], self.number + 1

    def clear(self) -> None:
        """Discard the frames that were not taken out yet; their batches' numbers are missing."""
        self.frames.clear()
        self.full.clear()

    def take(self, worker_id: str) -> FrameBatch:
        """Take out the batch that gathered first; what comes from now on is for one after it."""
        if self.full:
            number = self.last_taken + 1
            return FrameBatch(worker_id=worker_id, frames=self.full.popleft(), number=number)
        batch = FrameBatch(
            worker_id=worker_id, frames=self.frames, number=self.number, unkept=self.unkept
        )
        self.frames, self.unkept, self.number = [], [], self.number + 1
        self.is_urgent = False
        return batch

    def wake(self, awaited: "Iterable[asyncio.Future[None]] | None" = None) -> None:
        """Wake those that wait until frames are written; None: all of them."""
        if awaited is None:
            awaited, self.awaited = self.awaited, []
        for each in awaited:
            if not each.done():
                each.set_result(None)
