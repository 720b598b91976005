"""Renews a worker's lease from a thread of its own, whatever the worker's event loop does.

So a busy worker is told from a dead one: its lease lives on, and each beat reports how long ago the
loop was last alive. A loop that is stuck for good cannot end its process; the thread does.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog
from msgspec import structs
from redis.backoff import NoBackoff
from redis.retry import Retry

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.messages import WorkerInfo
from gpu_workers.protocol.redis_errors import is_transient
from gpu_workers.protocol.redis_url import connect

BEAT_EVERY_SECONDS: Final = 1.0
LOOK_EVERY_SECONDS: Final = 0.25
# Less than half a lease, so that a beat that Redis did not answer is followed by another in time.
REDIS_SECONDS: Final = 2.0
# A process that was stopped for an hour finds its loop an hour old; only one that leaves so many
# looks unanswered, five seconds of the thread's own life, is stuck.
LOOKS_OF_A_STUCK_LOOP: Final = 20

_log = structlog.get_logger("gpu_workers.heartbeat")


class LoopAge:
    """How long ago an event loop was last alive, as asked from another thread. `call_soon` has the
    loop call a function as soon as it runs."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._alive_at = clock()
        self._unanswered = 0

    @property
    def seconds(self) -> float:
        return self._clock() - self._alive_at

    def look(self) -> None:
        """Ask the loop to answer, if it is not asked already."""
        self._unanswered += 1
        if self._unanswered == 1:
            self._call_soon(self._answer)

    def is_stuck(self, seconds: float) -> bool:
        """Return whether the loop is older than that, and not because the process slept."""
        return self._unanswered > LOOKS_OF_A_STUCK_LOOP and self.seconds > seconds

    def _answer(self) -> None:
        self._alive_at = self._clock()
        self._unanswered = 0


class Heartbeat:
    """One worker's beats, over a connection of its own. `on_age` is called at each look with the
    loop's age in seconds, `on_stuck` once that exceeds `stuck_seconds`; both from the thread."""

    def __init__(
        self, redis_url: str, *, pool: str, worker_id: str, stuck_seconds: float = 60.0
    ) -> None:
        self._redis = connect(
            redis_url,
            socket_timeout=REDIS_SECONDS,
            socket_connect_timeout=REDIS_SECONDS,
            retry=Retry(NoBackoff(), 0),  # the next beat is the retry
        )
        self._pool = keys.pool_prefix(pool)
        self._worker_id = worker_id
        self._stuck_seconds = stuck_seconds
        self._info: WorkerInfo | None = None
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_problem = ""

    def start(self, *, on_age: Callable[[float], None], on_stuck: Callable[[float], None]) -> None:
        """Watch the running event loop from now on, and beat as soon as there is something to
        publish."""
        self._thread = threading.Thread(
            target=self._run,
            args=(LoopAge(asyncio.get_running_loop().call_soon_threadsafe), on_age, on_stuck),
            name="heartbeat",
            daemon=True,
        )
        self._thread.start()

    def publish(self, info: WorkerInfo) -> None:
        """Have the beats carry this description of the worker."""
        self._info = info

    async def close(self) -> None:
        """Beat no more: what becomes of the lease is for others to say."""
        self._is_closed.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._redis.close()

    def _run(
        self, age: LoopAge, on_age: Callable[[float], None], on_stuck: Callable[[float], None]
    ) -> None:
        beaten_at = float("-inf")
        while not self._is_closed.wait(LOOK_EVERY_SECONDS):
            age.look()
            seconds = age.seconds
            on_age(seconds)
            if age.is_stuck(self._stuck_seconds):
                on_stuck(seconds)
            if time.monotonic() - beaten_at >= BEAT_EVERY_SECONDS:
                beaten_at = time.monotonic()
                self._beat(seconds)

    def _beat(self, loop_age_seconds: float) -> None:
        if self._info is None:
            return
        age_ms = int(loop_age_seconds * 1000)
        info = codec.encode(structs.replace(self._info, loop_age_ms=age_ms))
        try:
            self._redis.fcall(functions.BEAT, 1, self._pool, self._worker_id, info, age_ms)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next beat may come through
            # A worker that Redis has lost or fenced hears so by its claims, which know what to do.
            problem = str(error) or type(error).__name__
            if problem != self._last_problem and not problem.startswith(("FENCED", "UNKNOWN")):
                kind = "transient" if is_transient(error) else "permanent"
                _log.warning("beat_failed", worker_id=self._worker_id, error=problem, kind=kind)
            self._last_problem = problem
        else:
            self._last_problem = ""
