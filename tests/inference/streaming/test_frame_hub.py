"""The hub survives Redis, and takes its keys with it; gateways vanish."""

import asyncio

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Delta, FrameBatch
from inference.streaming.frame_hub import FrameHub
from tests.support.gateways.cast import POOL
from tests.support.places import free_port
from tests.support.polling import eventually

ONE = Delta(request_id="a", attempt=1, seq=0, chunks=[b"one"], completion_tokens=1, token_ids=[])


async def test_the_hub_beats_reads_and_takes_its_keys_with_it(
    dispatch_redis: Redis, dispatch_redis_url: str
) -> None:
    blocking = Redis.from_url(dispatch_redis_url, socket_timeout=None)
    hub = FrameHub(dispatch_redis, blocking)
    await hub.start()
    stream = hub.open("a", lambda terminal: None, lambda: None, pool=POOL)
    stream.note_holder(1, "w")
    frames = keys.gateway_frames(hub.gateway_id, POOL)
    batch = FrameBatch(worker_id="w", frames=[ONE])
    await dispatch_redis.rpush(frames, b"not a frame", codec.encode(batch))
    assert (await stream.next()).chunks == [b"one"]
    heartbeat = keys.gateway_heartbeat(hub.gateway_id)
    assert await eventually(lambda: dispatch_redis.exists(heartbeat))
    await hub.stop()
    assert not await dispatch_redis.exists(heartbeat, frames)
    await blocking.aclose()


async def test_what_a_gateway_does_not_read_outlives_it_by_a_minute(
    dispatch_redis: Redis, dispatch_redis_url: str
) -> None:
    """No worker may expire it."""
    async with Redis(port=free_port()) as nothing:
        hub = FrameHub(dispatch_redis, nothing)
        key = keys.gateway_frames(hub.gateway_id, POOL)
        hub.open("a", lambda terminal: None, lambda: None, pool=POOL)
        await dispatch_redis.rpush(key, b"frames")
        await hub.start()
        ttl = await eventually(lambda: _has_an_end(dispatch_redis, key))
        await hub.stop()
    assert 0 < ttl <= 60


async def _has_an_end(redis: Redis, key: str) -> int:
    return max(0, await redis.ttl(key))


async def test_the_hub_reads_on_after_its_connection_broke(
    dispatch_redis: Redis, dispatch_redis_url: str
) -> None:
    blocking = Redis.from_url(dispatch_redis_url, socket_timeout=None, client_name="the-hub")
    hub = FrameHub(dispatch_redis, blocking)
    await hub.start()
    stream = hub.open("a", lambda terminal: None, lambda: None, pool=POOL)

    async def is_blocked() -> bool:
        clients = await dispatch_redis.client_list()
        return any(each["name"] == "the-hub" and each["cmd"] == "blmpop" for each in clients)

    stream.note_holder(1, "w")
    await eventually(is_blocked)
    await dispatch_redis.client_kill_filter(_type="normal", skipme=True)
    batch = FrameBatch(worker_id="w", frames=[ONE])
    await dispatch_redis.rpush(keys.gateway_frames(hub.gateway_id, POOL), codec.encode(batch))
    assert (await asyncio.wait_for(stream.next(), 5)).chunks == [b"one"]
    await hub.stop()
    await blocking.aclose()
