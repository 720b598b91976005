"""What a worker tells its pool, call by call."""

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterLevel
from gpu_workers.transport import Fenced, Transport, UnknownWorker
from tests.support.gateways.cast import a_worker_info
from tests.support.workers.listening_gateway import FakeGateway


async def test_a_worker_posts_how_near_it_has_adapters(
    dispatch_redis: Redis,
    sim_redis_url: str,
    gateway: FakeGateway,
) -> None:
    info = replace(a_worker_info(pool="sim"), adapter_slots=1)
    transport = Transport(sim_redis_url, pool="sim", worker_id=info.worker_id, worker_name="one")
    levels = keys.pool_worker_levels("sim", info.worker_id)
    try:
        with pytest.raises(UnknownWorker):
            await transport.post_adapters({"blue": AdapterLevel.DISK}, {})
        await transport.register(info)
        await transport.post_adapters({"blue": AdapterLevel.SLOT, "red": AdapterLevel.DISK}, {})
        await transport.post_adapters({"red": None}, {})
        assert await dispatch_redis.hgetall(levels) == {b"blue": b"3"}
        await transport.post_adapters({}, {})
        other = Transport(sim_redis_url, pool="sim", worker_id="two", worker_name="one")
        try:
            await other.register(replace(info, worker_id="two"))
        finally:
            await other.close()
        with pytest.raises(Fenced):
            await transport.post_adapters({"blue": None}, {})
    finally:
        await transport.close()
