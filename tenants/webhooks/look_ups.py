"""Look-ups of host names that tenants have named: each in a thread of its own, a few at once of
each owner, so that names which never answer hold up nobody else's.

The system's resolver cannot be told to give up, and takes half a minute where a name server is
silent. Whoever asked stops waiting long before; the thread goes on, and counts as its owner's.
"""

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, Final, TypeVar

_Found = TypeVar("_Found")

AT_ONCE: Final = 4
MOST_WAITING: Final = 32
# Of all owners together: what their threads cost in memory.
MOST: Final = 512


class TooManyLookUps(Exception):
    """The owner's names, or all together, are not answered as fast as they are asked for."""


class LookUps:
    """Runs look-ups, those of one owner a few at a time and in turn."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}

    def submit(
        self, owner: str, look_up: Callable[[], _Found], *, waiting_at_most: int = MOST_WAITING
    ) -> Future[_Found]:
        """Return what the look-up will find; cancelled before its turn, it is not made. Raises
        `TooManyLookUps`, of the owner's where so many wait already."""
        future: Future[_Found] = Future()
        with self._lock:
            if self._running[owner] >= AT_ONCE:
                waiting = self._waiting.setdefault(owner, deque())
                if len(waiting) >= waiting_at_most:
                    raise TooManyLookUps
                waiting.append((future, look_up))
                return future
            if self._running.total() >= MOST:
                raise TooManyLookUps
            self._running[owner] += 1
        Thread(target=self._run, args=[owner, future, look_up], daemon=True, name="dns").start()
        return future

    def _run(self, owner: str, future: Future[Any], look_up: Callable[[], Any]) -> None:
        while True:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(look_up())
                except Exception as error:  # noqa: BLE001 - it is the asker's
                    future.set_exception(error)
            with self._lock:
                waiting = self._waiting.get(owner)
                if not waiting:
                    self._waiting.pop(owner, None)
                    self._running[owner] -= 1
                    if not self._running[owner]:
                        del self._running[owner]
                    return
                future, look_up = waiting.popleft()
