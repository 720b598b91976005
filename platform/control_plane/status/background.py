"""What runs in the background, as /metrics tells it: when each task of the beat last succeeded,
what waits for Celery, and what Celery has counted in PostgreSQL for whoever may not ask there.

And what fsck has said last. Lies in the other Redis, that of Celery: three keys, which expire.
Needs no Django.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import msgspec
from redis import Redis as SyncRedis
from redis.asyncio import Redis

_SUCCESSES: Final = "beat:successes"
# Among the successes: since when they are noted.
_SINCE: Final = "since"
_FIGURES: Final = "background:figures"
_SUCCESSES_TTL_SECONDS: Final = 30 * 86_400
_FIGURES_TTL_SECONDS: Final = 300
_FSCK: Final = "fsck:result"
_FSCK_TTL_SECONDS: Final = 30 * 86_400
# As the alert rule PenstockBeatTaskLate has it.
_LATE_INTERVALS: Final = 3
_LATE_SECONDS: Final = 120
QUEUES: Final = ("penstock", "webhooks", "adapters", "slow")
_BROKER_PREFIX: Final = "celery:"
_TIMEOUT_SECONDS: Final = 2


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Counted in PostgreSQL. Costs are nano-dollars an hour of one worker, by pool; usage entries
    in quarantine by their cause, those of which there are none too."""

    webhooks_waiting: int
    webhooks_oldest_due_seconds: float
    emails_waiting: int
    worker_hour_nanos: dict[str, int]
    payment_events_unresolved: int = 0
    quarantined: dict[str, int] = {}


@dataclass(frozen=True, kw_only=True)
class BeatTask:
    """A task of the beat: how often it is to run, when it last succeeded (Unix seconds), None if
    that is not known, and since when that is noted."""

    name: str
    interval_seconds: float
    succeeded_at: float | None
    noted_since: float | None = None

    def is_late(self, now: float) -> bool:
        """Return whether it has missed runs. One that never succeeded has missed those since
        successes are noted."""
        last = self.noted_since if self.succeeded_at is None else self.succeeded_at
        if last is None:
            return False
        return now - last > _LATE_INTERVALS * self.interval_seconds + _LATE_SECONDS


class FsckResult(msgspec.Struct, frozen=True, kw_only=True):
    """What fsck has found: when it ended (Unix seconds), how many problems, and how many seconds it
    took, 0 of a result of before that was noted."""

    at: float
    problems: int
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Background:
    """All of it at one moment; `queued` are tasks by queue, `figures` None while nobody counts,
    `fsck` where it has not ended for a month."""

    tasks: tuple[BeatTask, ...]
    queued: Mapping[str, int]
    figures: Figures | None
    fsck: FsckResult | None = None


def background_redis(url: str) -> SyncRedis:
    """Open a client of the other Redis; one that does not answer soon is away."""
    return SyncRedis.from_url(
        url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS
    )


def note_success(redis: SyncRedis, task: str) -> None:
    """Note that a task of the beat has succeeded now. Callers name no other, which bounds it."""
    pipeline = redis.pipeline(transaction=False)
    now = f"{time.time():.3f}"
    pipeline.hsetnx(_SUCCESSES, _SINCE, now)
    pipeline.hset(_SUCCESSES, task, now)
    pipeline.expire(_SUCCESSES, _SUCCESSES_TTL_SECONDS)
    pipeline.execute()


def note_figures(redis: SyncRedis, figures: Figures) -> None:
    redis.set(_FIGURES, msgspec.json.encode(figures), ex=_FIGURES_TTL_SECONDS)


def note_fsck(redis: SyncRedis, problems: int, seconds: float) -> None:
    """Note that fsck has ended now, how many problems it has found and how long it took."""
    result = FsckResult(at=time.time(), problems=problems, seconds=seconds)
    redis.set(_FSCK, msgspec.json.encode(result), ex=_FSCK_TTL_SECONDS)


def last_fsck(redis: SyncRedis) -> FsckResult | None:
    """Return fsck's last result, None where it has not ended for a month."""
    return _fsck(cast("bytes | None", redis.get(_FSCK)))


def beat_tasks(redis: SyncRedis, intervals: Mapping[str, float]) -> tuple[BeatTask, ...]:
    """Read how the tasks of the beat do. `intervals`: seconds between two runs of each."""
    return _tasks(cast("dict[bytes, bytes]", redis.hgetall(_SUCCESSES)), intervals)


async def look(redis: Redis, intervals: Mapping[str, float]) -> Background:
    """Read all of it. `intervals`: seconds between two runs of each task of the beat."""
    pipeline = redis.pipeline(transaction=False)
    pipeline.hgetall(_SUCCESSES)
    pipeline.get(_FIGURES)
    pipeline.get(_FSCK)
    for queue in QUEUES:
        pipeline.llen(f"{_BROKER_PREFIX}{queue}")
    successes, figures, fsck, *lengths = await pipeline.execute()
    return Background(
        tasks=_tasks(successes, intervals),
        queued=dict(zip(QUEUES, cast(list[int], lengths), strict=True)),
        figures=None if figures is None else msgspec.json.decode(figures, type=Figures),
        fsck=_fsck(fsck),
    )


def _fsck(found: bytes | None) -> FsckResult | None:
    return None if found is None else msgspec.json.decode(found, type=FsckResult)


def _tasks(
    successes: Mapping[bytes, bytes], intervals: Mapping[str, float]
) -> tuple[BeatTask, ...]:
    succeeded = {name.decode(): float(at) for name, at in successes.items()}
    return tuple(
        BeatTask(
            name=name,
            interval_seconds=interval,
            succeeded_at=succeeded.get(name),
            noted_since=succeeded.get(_SINCE),
        )
        for name, interval in sorted(intervals.items())
    )
