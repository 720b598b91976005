"""One clock for everybody: that of the dispatch Redis (docs/adr/0028).

Times of a request are compared between processes: when it came, by its gateway, and when it got
its first token, by its worker. And a clock that is set, by hours even, while a process runs must
not tell in anything that was measured. So a process counts from Redis TIME with its monotonic
clock, and looks again every few seconds. Until it has heard from Redis it goes by the wall.
"""

import time

from redis.asyncio import Redis

_NS_PER_MS = 1_000_000


class SharedClock:
    """Redis TIME, as far as this process knows it."""

    def __init__(self) -> None:
        self._offset_ns: int | None = None  # from the monotonic clock

    def now_ms(self) -> int:
        """Return the time in Unix milliseconds."""
        if self._offset_ns is None:
            return time.time_ns() // _NS_PER_MS
        return (time.monotonic_ns() + self._offset_ns) // _NS_PER_MS

    def note(self, redis_time: tuple[int, int], *, asked_ns: int, answered_ns: int) -> None:
        """Take over what Redis TIME (seconds, microseconds) was at some moment between these two of
        `time.monotonic_ns`; as little is changed as that allows, so that slow answers change
        nothing."""
        seconds, microseconds = redis_time
        at_ns = (seconds * 1_000_000 + microseconds) * 1_000
        least, most = at_ns - answered_ns, at_ns - asked_ns
        if self._offset_ns is None:
            self._offset_ns = (least + most) // 2
        self._offset_ns = min(max(self._offset_ns, least), most)


async def read_clock(redis: Redis) -> None:
    """Have `CLOCK` go by this Redis. Raises what Redis answers instead."""
    asked_ns = time.monotonic_ns()
    redis_time = await redis.time()
    CLOCK.note(redis_time, asked_ns=asked_ns, answered_ns=time.monotonic_ns())


# Of this process, which has one dispatch Redis.
CLOCK = SharedClock()


def now_ms() -> int:
    """Return the time of the dispatch Redis in Unix milliseconds."""
    return CLOCK.now_ms()
