"""A catalogue and workers in Redis, as the policy writer and the workers themselves leave them."""

from typing import Any

import msgspec
from redis import Redis

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from gpu_workers.protocol.policy import ModelPolicy
from inference.redis_functions import LIBRARIES, library_text


def write_policy(redis: Redis, *models: ModelPolicy) -> None:
    redis.set(keys.policy_version(), "7-abcdef01")
    for model in models:
        redis.hset(keys.policy_models(), model.name, encode(model))
        redis.sadd(keys.known_pools(), model.pool)


def model_policy(name: str, *, tenant_ids: list[str] | None = None) -> ModelPolicy:
    return ModelPolicy(
        name=name,
        pool=name,
        context_tokens=2048,
        created_at=0,
        owned_by="penstock",
        tenant_ids=tenant_ids,
    )


def worker_info(**changes: Any) -> WorkerInfo:
    """What a worker of the pool `fleet-tests` publishes."""
    info = WorkerInfo(
        worker_id="gpu-1#aa",
        name="gpu-1",
        pool="fleet-tests",
        model="penstock-demo",
        engine="sim",
        engine_version="1",
        state=WorkerState.READY,
        slots=8,
        context_tokens=2048,
        kv_cache_tokens=10_000,
        template_overhead_tokens=8,
        max_token_bytes=16,
        running=2,
        waiting_in_engine=0,
        started_at_ms=1_790_000_000_000,
        host="node-1",
        pid=42,
        metrics_url="http://node-1:9101/metrics",
    )
    return msgspec.structs.replace(info, **changes)


def write_worker(
    redis: Redis, pool: str, *, state: WorkerState = WorkerState.READY, **changes: Any
) -> None:
    """Register a worker of the pool that has just sent a heartbeat, under its name."""
    seconds, microseconds = redis.time()
    defaults: dict[str, Any] = {
        "worker_id": f"{pool}-worker#1",
        "name": f"{pool}-worker",
        "pool": pool,
        "model": pool,
        "state": state,
        "running": 3,
        "waiting_in_engine": 1,
        "started_at_ms": 0,
        "host": "node-of-the-operator",
        "pid": 4242,
        "metrics_url": "",
    }
    info = worker_info(**(defaults | changes))
    redis.sadd(keys.known_pools(), pool)
    redis.hset(keys.pool_workers(pool), info.worker_id, encode(info))
    redis.hset(keys.pool_worker_names(pool), info.name, info.worker_id)
    beat = seconds * 1000 + microseconds // 1000
    redis.zadd(keys.pool_heartbeats(pool), {info.worker_id: beat})


def empty_with_functions(redis: Redis) -> None:
    """As a Redis is that has just lost everything, once the control plane has seen it."""
    redis.flushall()
    for library in LIBRARIES:
        redis.function_load(library_text(library), replace=True)


def join(
    redis: Redis,
    pool: str,
    name: str = "gpu-1",
    *,
    engine: str = "vllm",
    digest: str = f"sha256:{'1' * 32}",
) -> None:
    """Register as a worker does that starts. Raises `ResponseError` where it is refused."""
    info = worker_info(
        worker_id=f"{name}#1",
        name=name,
        pool=pool,
        state=WorkerState.STARTING,
        engine=engine,
        model_digest=digest,
    )
    redis.sadd(keys.known_pools(), pool)
    prefix = keys.pool_prefix(pool)
    redis.fcall(functions.REGISTER, 1, prefix, info.worker_id, name, encode(info))
