"""A worker as dispatch knows it, that is told what to get."""

from typing import Final, cast

from redis import Redis

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.messages import Prefetch
from inference.redis_functions import DISPATCH, library_text

WORKER: Final = "w1"


def a_worker(redis: Redis, pool: str) -> None:
    """One that is ready, with room for two adapters at once, and has nothing yet."""
    redis.function_load(library_text(DISPATCH), replace=True)
    prefix = keys.pool_prefix(pool)
    redis.fcall(functions.REGISTER, 1, prefix, WORKER, WORKER, b"info")
    redis.fcall(functions.CLAIM, 1, prefix, WORKER, b"info", 8, 0, 2, 1)


def prefetches(redis: Redis, pool: str) -> list[str]:
    """The adapters that it was told to get."""
    inbox = cast("list[bytes]", redis.lrange(keys.pool_inbox(pool, WORKER), 0, -1))
    told = [codec.decode_inbox(each) for each in inbox]
    return [each.adapter for each in told if isinstance(each, Prefetch)]
