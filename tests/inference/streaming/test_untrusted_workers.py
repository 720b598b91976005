"""What a node writes that is not to be believed reaches no stream of another pool, and keeps none
waiting."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import MAX_FRAMES_OF_A_BATCH, Delta, Frame, FrameBatch
from inference.streaming import frame_hub
from inference.streaming.frame_hub import FrameHub
from inference.streaming.token_stream import TokenStream
from tests.support.metrics import sample

WELL, EVIL, WORKER = "well", "evil", "w#1"
GARBAGE = 20_000
UNREADABLE = "penstock_gateway_unreadable_batches_total"


def a_delta(seq: int = 0, text: bytes = b"one") -> Delta:
    return Delta(
        request_id="a", attempt=1, seq=seq, chunks=[text], completion_tokens=1, token_ids=[]
    )


@pytest.fixture
async def hub(
    dispatch_redis: Redis, dispatch_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FrameHub]:
    """A hub whose reader comes back from waiting only when it is told to."""
    monkeypatch.setattr(frame_hub, "_BLOCK_SECONDS", 60)
    monkeypatch.setattr(frame_hub, "_DEAD_LINK_SECONDS", 240)
    async with Redis.from_url(dispatch_redis_url, socket_timeout=None) as blocking:
        hub = FrameHub(dispatch_redis, blocking)
        await hub.start()
        yield hub
        await hub.stop()


def a_stream(hub: FrameHub, request_id: str = "a", pool: str = WELL) -> TokenStream:
    stream = hub.open(request_id, lambda terminal: None, lambda: None, pool=pool)
    stream.note_holder(1, WORKER)
    return stream


async def push(redis: Redis, hub: FrameHub, pool: str, *frames: Delta) -> None:
    batch = FrameBatch(worker_id=WORKER, frames=list(frames))
    await redis.rpush(keys.gateway_frames(hub.gateway_id, pool), codec.encode(batch))


async def chunks(stream: TokenStream) -> list[bytes]:
    return (await asyncio.wait_for(stream.next(), 20)).chunks


async def test_a_flood_of_one_pool_goes_ahead_of_no_other(
    hub: FrameHub, dispatch_redis: Redis
) -> None:
    a_stream(hub, "evil", EVIL)
    stream = a_stream(hub)
    flooded = keys.gateway_frames(hub.gateway_id, EVIL)
    pipeline = dispatch_redis.pipeline()
    pipeline.rpush(flooded, *[b"\xff"] * GARBAGE)
    pipeline.rpush(
        keys.gateway_frames(hub.gateway_id, WELL),
        codec.encode(FrameBatch(worker_id=WORKER, frames=[a_delta()])),
    )
    await pipeline.execute()
    assert await chunks(stream) == [b"one"]
    assert await dispatch_redis.llen(flooded) > GARBAGE // 2


async def test_a_pool_that_was_not_listened_to_is_heard_at_once(
    hub: FrameHub, dispatch_redis: Redis
) -> None:
    await push(dispatch_redis, hub, WELL, a_delta())
    assert await chunks(a_stream(hub)) == [b"one"]
    other = hub.open("b", lambda terminal: None, lambda: None, pool="other")
    other.note_holder(1, WORKER)
    batch = FrameBatch(worker_id=WORKER, frames=[_of("b")])
    await dispatch_redis.rpush(keys.gateway_frames(hub.gateway_id, "other"), codec.encode(batch))
    assert await chunks(other) == [b"one"]


async def test_who_names_another_pools_worker_and_request_is_not_heard(
    hub: FrameHub, dispatch_redis: Redis
) -> None:
    evil, stream = a_stream(hub, "evil", EVIL), a_stream(hub)
    await push(dispatch_redis, hub, EVIL, a_delta(text=b"forged"), _of("evil"))
    assert await chunks(evil) == [b"one"], "all of the batch was read"
    await push(dispatch_redis, hub, WELL, a_delta())
    assert await chunks(stream) == [b"one"]


@pytest.mark.parametrize("kind", ["no message", "too long", "too many"])
async def test_a_batch_that_cannot_be_read_ends_nobody_elses(
    hub: FrameHub, dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(frame_hub, "MOST_BATCH_BYTES", 1_000_000)
    frames: list[Frame] = [_of("nobody")] * (MAX_FRAMES_OF_A_BATCH + 1)
    many = codec.encode(FrameBatch(worker_id=WORKER, frames=frames))
    data = {"no message": b"\xff", "too long": bytes(1_000_001), "too many": many}[kind]
    stream, before = a_stream(hub), sample(UNREADABLE)
    await dispatch_redis.rpush(keys.gateway_frames(hub.gateway_id, WELL), data, data)
    await push(dispatch_redis, hub, WELL, a_delta())
    assert await chunks(stream) == [b"one"]
    assert sample(UNREADABLE) == before + 2


def _of(request_id: str) -> Delta:
    return Delta(
        request_id=request_id, attempt=1, seq=0, chunks=[b"one"], completion_tokens=1, token_ids=[]
    )
