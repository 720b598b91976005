"""The frames that a worker has sent lately, so that it can resend those that a gateway missed, and
leave with a finished request what its gateway has not confirmed.

Of each request the newest are kept, up to a number of bytes, and for a while after its end, since
the lost frame may be the last one. The total is bounded too; beyond it a request keeps only the
frame it has just sent.
"""

from collections import deque
from typing import Final

from gpu_workers.frames.outgoing import Outgoing
from gpu_workers.protocol.messages import Delta, Frame, TextDelta

MAX_REQUEST_BYTES: Final = 256 * 1024
MAX_BYTES: Final = 64 * 1024 * 1024
# Of what Redis has taken, and the gateway may have.
MAX_UNCONFIRMED_BYTES: Final = 64 * 1024
# What a frame takes besides its texts and its tokens, roughly.
_FRAME_BYTES: Final = 200
_TOKEN_BYTES: Final = 8


class _Sent:
    """`frames`: size, the frame, and the number of the batch that it went with last."""

    __slots__ = ("frames", "outgoing", "size")

    def __init__(self, outgoing: Outgoing) -> None:
        self.outgoing = outgoing
        self.frames: deque[tuple[int, Frame, int]] = deque()
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

    def keep(self, outgoing: Outgoing, frame: Frame) -> None:
        """Keep a frame that goes with the next batch."""
        sent = self._sent.get((frame.request_id, frame.attempt))
        if sent is None:
            sent = self._sent[frame.request_id, frame.attempt] = _Sent(outgoing)
            outgoing.attempts += 1
        size = _size_of(frame)
        sent.frames.append((size, frame, outgoing.number))
        sent.size += size
        self._size += size
        while len(sent.frames) > 1 and (
            sent.size > self._max_request_bytes or self._size > self._max_bytes
        ):
            oldest, _, _ = sent.frames.popleft()
            sent.size -= oldest
            self._size -= oldest

    def has_any(self, request_id: str, attempt: int) -> bool:
        """Return whether any frame of an attempt is kept: the newest always is."""
        return (request_id, attempt) in self._sent

    def resend(
        self, request_id: str, attempt: int, seq: int
    ) -> tuple[Outgoing, list[Frame]] | None:
        """Return where an attempt's frames go and those from number `seq` on, which go with the
        next batch once more; None if `seq` is no longer kept."""
        sent = self._sent.get((request_id, attempt))
        if sent is None or sent.frames[0][1].seq > seq:
            return None
        again: list[Frame] = []
        for index, (size, frame, _) in enumerate(sent.frames):
            if frame.seq >= seq:
                sent.frames[index] = size, frame, sent.outgoing.number
                again.append(frame)
        return sent.outgoing, again

    def unconfirmed(self, request_id: str, attempt: int) -> list[Frame]:
        """Return the frames of an attempt that its gateway may not have, as far as they are kept;
        of those that Redis has taken, the newest `MAX_UNCONFIRMED_BYTES`."""
        sent = self._sent.get((request_id, attempt))
        if sent is None:
            return []
        newest_first: list[Frame] = []
        written, confirmed, left = sent.outgoing.written, sent.outgoing.confirmed, 0
        for size, frame, number in reversed(sent.frames):
            left += size
            if number <= confirmed or (number <= written and left > MAX_UNCONFIRMED_BYTES):
                break
            newest_first.append(frame)
        return newest_first[::-1]

    def forget(self, request_id: str, attempt: int) -> Outgoing | None:
        """Drop an attempt's frames; return where they went, None if there are none."""
        sent = self._sent.pop((request_id, attempt), None)
        if sent is None:
            return None
        self._size -= sent.size
        sent.outgoing.attempts -= 1
        return sent.outgoing


def _size_of(frame: Frame) -> int:
    if isinstance(frame, TextDelta):
        return _FRAME_BYTES + len(frame.text) + _TOKEN_BYTES * len(frame.token_ids)
    if isinstance(frame, Delta):
        size = _FRAME_BYTES + _TOKEN_BYTES * len(frame.token_ids)
        for chunk in frame.chunks:
            size += len(chunk)
        return size
    return _FRAME_BYTES + len(frame.body or b"")
