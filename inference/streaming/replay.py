"""What an attempt says again when it goes on from the output of an earlier one.

It begins with the role, which counts no token, and then says all earlier tokens in one frame that
holds no other. Frames are left out by their cumulative count; those that share the last one, such
as the usage after the last token, by their number.
"""

from gpu_workers.protocol.messages import Delta, TextDelta
from inference.errors import StreamBroken


class Replay:
    """`frames` is how many frames with the count of `token_ids` have been taken."""

    def __init__(self, token_ids: list[int], *, frames: int) -> None:
        self._token_ids = token_ids
        self._frames = frames
        self._is_due = bool(token_ids)

    def covers(self, delta: Delta | TextDelta) -> bool:
        """Return whether all that the frame says has been taken before. Raises `StreamBroken` if
        the attempt goes on from anything else."""
        count = len(self._token_ids)
        if self._is_due and delta.token_ids:
            if delta.token_ids != self._token_ids or delta.completion_tokens != count:
                raise StreamBroken("Another worker went on from other output than was sent.")
            self._is_due = False
        if delta.completion_tokens < count:
            return True
        if delta.completion_tokens == count and self._frames:
            self._frames -= 1
            return True
        return False
