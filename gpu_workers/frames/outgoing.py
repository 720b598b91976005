"""What one worker has for one gateway: the frames of the next write, and how far the gateway is
with those before."""

import asyncio
from collections.abc import Iterable

from gpu_workers.protocol.messages import Frame, FrameBatch, Resend


class Outgoing:
    """Batches are numbered without gaps: `number` is that of the next one, which gathers now,
    `written` of the last that Redis has taken, `confirmed` of the last that the gateway says it
    has, with all before. What gathers `is_urgent`, or can wait for the pace; `written_at` is when
    the last write began, by the loop's clock."""

    __slots__ = (
        "attempts",
        "awaited",
        "confirmed",
        "frames",
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
        return bool(self.frames or self.unkept)

    @property
    def is_idle(self) -> bool:
        return not (self.has_any or self.write or self.attempts)

    def take(self, worker_id: str) -> FrameBatch:
        """Take out what gathered; what comes from now on is for the batch after it."""
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
