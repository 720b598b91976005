"""A panel of a live page, and what was read for it last.

All open pages of a process share one reading a second. One that fails leaves the figures before it,
with the moment since when they are old.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from django.db import DatabaseError
from redis.exceptions import RedisError

from gpu_workers.protocol.codec import WireFormatError

# How often an open page asks.
EVERY_MS: Final = 2000
FRESH_SECONDS: Final = 1.0
# One that is away is asked more rarely, as each question may wait for its answer.
RETRY_SECONDS: Final = 3.0
# Ranges and filters are many.
KEPT_READINGS: Final = 100

_log = structlog.get_logger("control_plane.live")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """`name` is its own among all panels; `read` returns what `template` shows, without any
    tenant's secrets: it is kept in memory. It opens the scope that it needs. What
    is costly to read stays `fresh_seconds`, at least the second of all. `variant` tells apart what
    the page's address asks for. Who lacks `permission` does not see it; `redis` says what cannot be
    reached on a `RedisError`.
    """

    name: str
    title: str
    template: str
    read: Callable[[], Any]
    fresh_seconds: float = 0.0
    variant: str = ""
    permission: str = ""
    redis: str = "The dispatch Redis"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a panel shows: its `data`, None before any was read; when that was; when somebody tried
    last; and why that failed, empty where it did not. Times are seconds of the Unix epoch."""

    data: Any = None
    read_at: float = 0.0
    tried_at: float = 0.0
    problem: str = ""

    @property
    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.read_at, UTC)

    def is_fresh(self, now: float, fresh_seconds: float) -> bool:
        return (
            0
            <= now - self.tried_at
            < (RETRY_SECONDS if self.problem else max(FRESH_SECONDS, fresh_seconds))
        )


class _LastReadings:
    """The last reading of each panel, in this process's memory: what panels show are values of many
    types, and nothing that is read from a server of others is made into objects."""

    def __init__(self) -> None:
        self._own: dict[str, Reading] = {}
        self._lock = threading.Lock()
        self._reading: set[str] = set()

    def get(self, panel: Panel) -> Reading:
        return self._own.get(_key(panel), Reading())

    def put(self, panel: Panel, reading: Reading) -> None:
        with self._lock:
            self._own.pop(_key(panel), None)
            self._own[_key(panel)] = reading
            for oldest in list(self._own)[:-KEPT_READINGS]:
                del self._own[oldest]

    def begin(self, panel: Panel) -> bool:
        """Return whether it is the caller's to read; others show what was read before."""
        with self._lock:
            if _key(panel) in self._reading:
                return False
            self._reading.add(_key(panel))
            return True

    def end(self, panel: Panel) -> None:
        with self._lock:
            self._reading.discard(_key(panel))


_last: Final = _LastReadings()


def current(panel: Panel, clock: Callable[[], float] = time.time) -> Reading:
    """Return a panel's figures, read anew if they are more than a second old and nobody else does
    so at the moment."""
    reading = _last.get(panel)
    if reading.is_fresh(clock(), panel.fresh_seconds):
        return reading
    if not _last.begin(panel):
        return reading
    try:
        reading = _last.get(panel)  # another thread may just have ended
        if not reading.is_fresh(clock(), panel.fresh_seconds):
            reading = _read(panel, reading, clock)
            _last.put(panel, reading)
    finally:
        _last.end(panel)
    return reading


def _read(panel: Panel, before: Reading, clock: Callable[[], float]) -> Reading:
    try:
        data = panel.read()
    except (RedisError, DatabaseError, WireFormatError) as error:
        if not before.problem:
            _log.warning("panel_not_read", panel=panel.name, reason=type(error).__name__)
        return replace(before, tried_at=clock(), problem=_sentence(panel, error))
    now = clock()
    return Reading(data=data, read_at=now, tried_at=now)


def _sentence(panel: Panel, error: Exception) -> str:
    if isinstance(error, RedisError):
        return f"{panel.redis} is not reachable."
    if isinstance(error, DatabaseError):
        return "PostgreSQL is not reachable."
    return "What Redis has is of another version."


def _key(panel: Panel) -> str:
    return f"panel:{panel.name}:{panel.variant}"
