"""The frames that a worker has sent lately, so that it can resend those that a gateway missed.

Of each request the newest are kept, up to a number of bytes, and for a while after its end, since
the lost frame may be the last one. The total is bounded too; beyond it a request keeps only the
frame it has just sent.
"""

import asyncio
from collections import deque
from typing import Final

from gpu_workers.protocol.messages import Delta, Frame

MAX_REQUEST_BYTES: Final = 256 * 1024
MAX_BYTES: Final = 64 * 1024 * 1024
KEPT_AFTER_END_SECONDS: Final = 10.0
# What a frame takes besides its texts and its tokens, roughly.
_FRAME_BYTES: Final = 200
_TOKEN_BYTES: Final = 8


class _Sent:
    __slots__ = ("frames", "gateway_id", "size")

    def __init__(self, gateway_id: str) -> None:
        self.gateway_id = gateway_id
        self.frames: deque[tuple[int, Frame]] = deque()
        self.size = 0


class FrameRing:
    """All that one worker may be asked to resend. `keep` is on the hot path."""

    def __init__(
        self,
        *,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._max_request_bytes = max_request_bytes
        self._max_bytes = max_bytes
        self._sent: dict[tuple[str, int], _Sent] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """Return roughly how many bytes are kept."""
        return self._size

    def keep(self, gateway_id: str, frame: Frame) -> None:
        sent = self._sent.get((frame.request_id, frame.attempt))
        if sent is None:
            sent = self._sent[frame.request_id, frame.attempt] = _Sent(gateway_id)
        size = _size_of(frame)
        sent.frames.append((size, frame))
        sent.size += size
        self._size += size
        while len(sent.frames) > 1 and (
            sent.size > self._max_request_bytes or self._size > self._max_bytes
        ):
            oldest, _ = sent.frames.popleft()
            sent.size -= oldest
            self._size -= oldest

    def since(self, request_id: str, attempt: int, seq: int) -> tuple[str, list[Frame]]:
        """Return an attempt's gateway and its frames from number `seq` on; "" and no frames if
        `seq` is no longer kept."""
        sent = self._sent.get((request_id, attempt))
        if sent is None or sent.frames[0][1].seq > seq:
            return "", []
        return sent.gateway_id, [frame for _, frame in sent.frames if frame.seq >= seq]

    def end(self, request_id: str, attempt: int) -> None:
        """Keep an ended attempt's frames for `KEPT_AFTER_END_SECONDS`, then drop them."""
        loop = asyncio.get_running_loop()
        loop.call_later(KEPT_AFTER_END_SECONDS, self.forget, request_id, attempt)

    def forget(self, request_id: str, attempt: int) -> None:
        sent = self._sent.pop((request_id, attempt), None)
        if sent is not None:
            self._size -= sent.size


def _size_of(frame: Frame) -> int:
    if isinstance(frame, Delta):
        size = _FRAME_BYTES + _TOKEN_BYTES * len(frame.token_ids)
        for chunk in frame.chunks:
            size += len(chunk)
        return size
    return _FRAME_BYTES + len(frame.body or b"")
