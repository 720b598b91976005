"""A gateway is given up for the bytes that it leaves unread, not for the batches."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gpu_workers.frames import unread
from gpu_workers.frames.writer import FrameWriter
from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Delta

GATEWAY = "gateway"
OTHERS = 12_000


class Writing:
    """The writer of one worker, and the gateways that it gave up."""

    def __init__(self, redis: Redis) -> None:
        self.lost: list[str] = []
        self.writer = FrameWriter(
            redis, pool="sim", worker_id="w#1", on_gateway_lost=self.lost.append
        )
        self._seq = 0

    async def write(self, chunk: bytes = b"{}") -> None:
        frame = Delta(
            request_id="r1", attempt=1, seq=self._seq, chunks=[chunk], completion_tokens=1,
            token_ids=[1],
        )  # fmt: skip
        self._seq += 1
        self.writer.append(GATEWAY, frame)
        await self.writer.wait_written(GATEWAY)


@pytest.fixture
async def writing(sim_redis_url: str, dispatch_redis: Redis) -> AsyncIterator[Writing]:
    """As the worker's own user."""
    async with Redis.from_url(sim_redis_url) as redis:
        writing = Writing(redis)
        yield writing
        await writing.writer.close()


async def leave(redis: Redis, batches: int, size: int) -> None:
    """What other workers have left for the gateway."""
    pipeline = redis.pipeline(transaction=False)
    for _ in range(batches):
        pipeline.rpush(keys.gateway_frames(GATEWAY, "sim"), b"x" * size)
    await pipeline.execute()


async def test_a_batch_of_each_of_very_many_workers_is_no_reason_to_give_a_gateway_up(
    writing: Writing, dispatch_redis: Redis
) -> None:
    await leave(dispatch_redis, OTHERS, 100)
    await writing.write()
    assert await dispatch_redis.llen(keys.gateway_frames(GATEWAY, "sim")) == OTHERS + 1
    assert writing.lost == []


async def test_a_gateway_that_leaves_too_many_bytes_is_given_up(
    writing: Writing, dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "MAX_UNREAD_BYTES", 1_000_000)
    await leave(dispatch_redis, unread.LOOK_BATCHES, 20_000)
    await writing.write()
    assert writing.lost == [GATEWAY]


async def test_a_list_is_measured_no_more_often_than_now_and_then(
    writing: Writing, dispatch_redis: Redis
) -> None:
    await leave(dispatch_redis, unread.LOOK_BATCHES, 100)
    for _ in range(20):
        await writing.write()
    statistics = await dispatch_redis.info("commandstats")
    # A second passes at most a few times while twenty frames are written.
    assert 1 <= statistics["cmdstat_memory|usage"]["calls"] < 10


async def test_a_short_list_is_not_measured_at_all(
    writing: Writing, dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "MAX_UNREAD_BYTES", 0)
    for _ in range(unread.LOOK_BATCHES):
        await writing.write()
    assert writing.lost == []
    await writing.write()
    assert writing.lost == [GATEWAY]
