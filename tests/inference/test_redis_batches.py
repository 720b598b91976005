"""Commands that are asked for at the same time share a round trip, and nobody's fate."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from gpu_workers.protocol.redis_url import connect_async
from inference.redis_batches import LARGEST_SHARED_BYTES, MOST_OF_A_BATCH, CommandBatches


@pytest.fixture(autouse=True)
async def _nothing_is_left(dispatch_redis: Redis) -> AsyncIterator[None]:
    yield
    await dispatch_redis.flushdb()


async def test_everybody_gets_the_answers_to_their_own_commands(dispatch_redis: Redis) -> None:
    batches = CommandBatches(dispatch_redis)
    asked = [batches.run(("ECHO", str(n)), ("ECHO", f"{n}!")) for n in range(3 * MOST_OF_A_BATCH)]
    assert await asyncio.gather(*asked) == [
        [f"{n}".encode(), f"{n}!".encode()] for n in range(3 * MOST_OF_A_BATCH)
    ]


async def test_an_error_is_told_to_whoever_asked_for_it_alone(dispatch_redis: Redis) -> None:
    await dispatch_redis.set("a text", "x")
    batches = CommandBatches(dispatch_redis)
    (first, error), others = await asyncio.gather(
        batches.run(("ECHO", "1"), ("LPUSH", "a text", "1")),
        batches.run(("ECHO", "2")),
    )
    assert (first, others) == (b"1", [b"2"])
    assert isinstance(error, ResponseError)


async def test_commands_run_in_the_order_in_which_they_were_asked_for(
    dispatch_redis: Redis,
) -> None:
    batches = CommandBatches(dispatch_redis)
    await asyncio.gather(*(batches.run(("RPUSH", "order", n)) for n in range(200)))
    assert await dispatch_redis.lrange("order", 0, -1) == [str(n).encode() for n in range(200)]


async def test_who_stops_waiting_takes_nobody_along(dispatch_redis: Redis) -> None:
    batches = CommandBatches(dispatch_redis)
    gone = asyncio.create_task(batches.run(("ECHO", "gone")))
    stays = asyncio.create_task(batches.run(("ECHO", "stays")))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == [b"stays"]
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_what_nobody_waits_for_any_more_is_not_sent(dispatch_redis: Redis) -> None:
    batches = CommandBatches(dispatch_redis)
    gone = asyncio.create_task(batches.run(("SET", "of nobody", "1")))
    stays = asyncio.create_task(batches.run(("SET", "of somebody", "1")))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert await dispatch_redis.exists("of nobody", "of somebody") == 1


async def test_nobody_waits_behind_a_large_command(dispatch_redis: Redis) -> None:
    batches = CommandBatches(dispatch_redis)
    key = "k" * LARGEST_SHARED_BYTES
    large = asyncio.create_task(batches.run(("BLPOP", key, 5)))
    await asyncio.sleep(0)
    assert await batches.run(("RPUSH", "other", "x")) == [1]
    assert not large.done()
    await dispatch_redis.rpush(key, "come")
    (popped,) = await large
    assert list(popped) == [key.encode(), b"come"]


async def test_a_lost_connection_is_told_to_all_and_the_next_call_finds_another() -> None:
    batches = CommandBatches(connect_async("redis://127.0.0.1:1", socket_connect_timeout=1))
    for _ in range(2):
        lost = await asyncio.gather(
            *(batches.run(("ECHO", "x")) for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in lost] == [RedisConnectionError] * 3
