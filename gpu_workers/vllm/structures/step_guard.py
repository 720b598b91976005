"""Ends the newest request with a structure while an engine's steps are slow.

A trial bounds what a structure costs at its beginning; what it costs behind a thousand tokens, and
what many cost together, only the engine finds out. It still listens between two steps.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# One slow step is a pause of the machine; so many are what is being computed.
SLOW_STEPS: Final = 3


class StepGuard:
    """The steps of one engine while it follows structures. Times are seconds of one clock."""

    def __init__(self, *, most_seconds: float) -> None:
        self._most_seconds = most_seconds
        self._following: dict[str, Callable[[], None]] = {}  # the newest last
        self._stepped_at: float | None = None
        self._slow = 0
        self._loads = 0
        self._was_loading = False

    def begins(self, request_id: str, end: Callable[[], None]) -> None:
        """Note a request that follows a structure; `end` ends it, and is called once at most."""
        if not self._following:
            self._stepped_at = None  # the engine may have been idle since
            self._slow = 0
        self._following.setdefault(request_id, end)

    def ends(self, request_id: str) -> None:
        """Forget a request, whatever it was."""
        self._following.pop(request_id, None)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Note that the engine loads an adapter for the block, between two of its steps."""
        self._loads += 1
        try:
            yield
        finally:
            self._loads -= 1
            self._was_loading = True

    def step(self, now: float, *, has_prompt: bool) -> None:
        """Note a step that is over. One with a prompt in it takes as long as the prompt does, one
        with a load before it as long as that: they tell nothing."""
        before, self._stepped_at = self._stepped_at, now
        has_load, self._was_loading = self._loads > 0 or self._was_loading, False
        if before is None or has_prompt or has_load or not self._following:
            return
        self._slow = self._slow + 1 if now - before > self._most_seconds else 0
        if self._slow == SLOW_STEPS:
            self._slow = 0
            _, end = self._following.popitem()
            end()
