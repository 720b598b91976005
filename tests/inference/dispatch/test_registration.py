"""The door of a pool: who would serve something else than its first worker is not let in."""

from typing import Any

import msgspec
import pytest
from msgspec import structs
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from tests.support.gateways.cast import POOL, a_worker_info

ONE, OTHER = "sha256:" + "1" * 32, "sha256:" + "2" * 32


async def join(redis: Redis, name: str, **changes: Any) -> None:
    info = structs.replace(
        a_worker_info(f"{name}#1"), **{"engine": "vllm", "state": WorkerState.STARTING, **changes}
    )
    prefix = keys.pool_prefix(POOL)
    await redis.fcall(functions.REGISTER, 1, prefix, f"{name}#1", name, codec.encode(info))


async def refusal(redis: Redis, name: str, **changes: Any) -> str:
    with pytest.raises(ResponseError, match="MISMATCH") as error:
        await join(redis, name, **changes)
    return str(error.value)


async def names(redis: Redis) -> list[str]:
    found: Any = await redis.hkeys(keys.pool_worker_names(POOL))
    return sorted(name.decode() for name in found)


async def test_another_engine_is_refused_with_the_reason_and_counted(dispatch_redis: Redis) -> None:
    await join(dispatch_redis, "good", model_digest=ONE)
    told = await refusal(dispatch_redis, "stand-in", engine="sim")
    assert f"vllm {ONE}" in told
    assert "stand-in brings sim" in told
    assert await names(dispatch_redis) == ["good"]
    counted = await dispatch_redis.hgetall(keys.pool_identity(POOL))
    assert counted[b"refused"] == b"1"
    assert (counted[b"refused_name"], counted[b"refused_engine"]) == (b"stand-in", b"sim")


async def test_another_model_is_refused_and_the_same_one_is_not(dispatch_redis: Redis) -> None:
    await join(dispatch_redis, "good", model_digest=ONE)
    assert OTHER in await refusal(dispatch_redis, "bad", model_digest=OTHER)
    await join(dispatch_redis, "second", model_digest=ONE)
    assert await names(dispatch_redis) == ["good", "second"]


async def test_a_refused_worker_fences_nobody_whose_name_it_has(dispatch_redis: Redis) -> None:
    await join(dispatch_redis, "good", model_digest=ONE)
    info = structs.replace(
        a_worker_info("good#2", state=WorkerState.STARTING), engine="sim", model_digest=""
    )
    with pytest.raises(ResponseError, match="MISMATCH"):
        prefix, data = keys.pool_prefix(POOL), codec.encode(info)
        await dispatch_redis.fcall(functions.REGISTER, 1, prefix, "good#2", "good", data)
    assert await dispatch_redis.hget(keys.pool_worker_names(POOL), "good") == b"good#1"
    heartbeat = await dispatch_redis.zscore(keys.pool_heartbeats(POOL), "good#1")
    assert heartbeat is not None and heartbeat > 0


async def test_a_worker_that_tells_no_digest_is_judged_by_its_engine(dispatch_redis: Redis) -> None:
    """One of an earlier version, or of a model that it has yet to fetch."""
    await join(dispatch_redis, "old")
    await join(dispatch_redis, "new", model_digest=ONE)
    await join(dispatch_redis, "older")
    await refusal(dispatch_redis, "bad", model_digest=OTHER)
    await refusal(dispatch_redis, "stand-in", engine="sim")


async def test_an_earlier_versions_description_is_read(dispatch_redis: Redis) -> None:
    await join(dispatch_redis, "good", model_digest=ONE)
    info = structs.replace(a_worker_info("old#1", state=WorkerState.STARTING), engine="sim")
    fields = msgspec.msgpack.decode(codec.encode(info))
    before = 1 + WorkerInfo.__struct_fields__.index("model_digest")  # behind the tag
    shorter = msgspec.msgpack.encode(fields[:before])
    with pytest.raises(ResponseError, match="MISMATCH"):
        prefix = keys.pool_prefix(POOL)
        await dispatch_redis.fcall(functions.REGISTER, 1, prefix, "old#1", "old", shorter)


async def test_a_worker_that_runs_may_register_again_whatever_the_pool_serves_now(
    dispatch_redis: Redis,
) -> None:
    """A Redis that lost everything may have let another one in first: what has requests goes on."""
    await join(dispatch_redis, "other", engine="sim")
    await join(dispatch_redis, "good", model_digest=ONE, state=WorkerState.READY)
    assert await names(dispatch_redis) == ["good", "other"]
