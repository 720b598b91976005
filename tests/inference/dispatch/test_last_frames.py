"""`finish` keeps the end of a request for its gateway, of the attempt alone that it accepts."""

from redis.asyncio import Redis

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.calls import FinishMode, finish_arguments
from gpu_workers.protocol.messages import Outcome
from inference.dispatch.queue import Dispatch, usage_entry
from tests.support.dispatch.bare_calls import Workers, enqueue
from tests.support.gateways.cast import POOL, an_envelope

KEPT = keys.pool_last_frames(POOL, "a")


async def finish(
    redis: Redis, last_frames: bytes, *, attempt: int = 1, mode: FinishMode = ""
) -> int:
    entry = usage_entry(
        an_envelope(request_id="a"), attempt=attempt, outcome=Outcome.COMPLETED, error_code=None
    )
    arguments = finish_arguments(entry, mode=mode, last_frames=last_frames)
    answer: list[int] = await redis.fcall(functions.FINISH, 1, keys.pool_prefix(POOL), *arguments)
    return answer[0]


async def test_the_end_of_the_attempt_that_ends_its_request_is_kept_for_a_minute(
    dispatch: Dispatch, workers: Workers, dispatch_redis: Redis
) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a")
    assert await finish(dispatch_redis, b"refused", attempt=2) != 1
    assert await finish(dispatch_redis, b"asked", mode="ask") != 1
    assert not await dispatch_redis.exists(KEPT)
    assert await finish(dispatch_redis, b"the end") == 1
    assert await finish(dispatch_redis, b"another's", attempt=2) == 0
    assert await dispatch_redis.get(KEPT) == b"the end"
    assert 0 < await dispatch_redis.ttl(KEPT) <= 60


async def test_nothing_is_kept_where_nothing_is_left(
    dispatch: Dispatch, workers: Workers, dispatch_redis: Redis
) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a")
    assert await finish(dispatch_redis, b"") == 1
    assert not await dispatch_redis.exists(KEPT)
