"""Workers for the fleet page: busy and idle ones, one of an earlier version, one with a GPU that is
too hot, one that drains, one that fell silent."""

import time
from datetime import timedelta

from django.utils import timezone
from redis import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.figures import EngineFigures, GpuFigures
from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from inference.models import Worker
from tenants.models import Tenant
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.fleet import worker_info
from tests.support.servers import servers

_GIB = 1024**3
# Requests that `growth` has reserved: two that run, and two that wait.
_RESERVED = {15: "picture-0", 16: "picture-1", 31: "picture-2", 33: "picture-3"}
# They stay alive while pictures are taken, which takes minutes.
_AHEAD_MS = 3_600_000


def have_fleet(*tenants: Tenant) -> None:
    """Write it to the database and the dispatch Redis; within an operator's scope."""
    beat = time.time() * 1000 + _AHEAD_MS
    with Redis.from_url(servers().dispatch_redis.url) as redis:
        _have_queue(redis, tenants)
        for info in _workers():
            redis.sadd(keys.known_pools(), info.pool)
            redis.hset(keys.pool_workers(info.pool), info.worker_id, codec.encode(info))
            redis.zadd(keys.pool_heartbeats(info.pool), {info.worker_id: beat})
    lost = _worker("gpu-9", 9, "llama-3.1-8b", running=21)
    Worker.objects.sync([lost], timezone.now() - timedelta(hours=3))
    Worker.objects.sync([], timezone.now() - timedelta(hours=2), silent=[lost.worker_id])


def _have_queue(redis: Redis, tenants: tuple[Tenant, ...]) -> None:
    """Requests of these tenants, run and waiting, by the real dispatch functions."""
    pool = VirtualPool(redis, "llama-3.1-8b")
    pool.now_ms = int(time.time() * 1000) - 90_000
    pool.register("gpu-1#00000001")
    pool.claim("gpu-1#00000001", 24)
    for number in range(36):
        index = number % len(tenants) if number < 12 else 0
        service_class = "batch" if number % 5 == 4 else "interactive"
        pool.enqueue(
            Ask(
                request_id=_RESERVED.get(number, f"request-{number}"),
                tenant=str(tenants[index].pk),
                weight=4 - index,
                service_class=service_class,
            )
        )
        pool.now_ms += 1_300
        pool.beat("gpu-1#00000001")
        if number == 9:
            pool.finish("request-0", 1, prompt=400, output=180)
            redis.delete(keys.pool_usage(pool.name))  # this pool's records are no usage entries


def _workers() -> list[WorkerInfo]:
    hot = _gpu(2, celsius=88, throttling=["hardware_heat", "power_cap"], ecc_corrected=12)
    return [
        _worker("gpu-1", 1, "llama-3.1-8b", running=118, waiting_in_engine=3),
        _worker(
            "gpu-2", 2, "llama-3.1-8b", running=64, gpus=[hot],
            warning="GPU 0 is throttled: heat (hardware)",
        ),
        _worker("gpu-3", 3, "llama-3.1-8b", running=9, state=WorkerState.DRAINING),
        _worker("gpu-4", 4, "qwen-3-32b", running=31, gpus=[_gpu(4), _gpu(5)]),
        _worker("gpu-5", 5, "qwen-3-32b", running=12, figures=None, gpus=None),
        _worker(
            "cpu-1", 6, "penstock-demo", running=0, gpus=[],
            figures=EngineFigures(kv_used=0.0, batch_used=0.0, preemptions=0),
            problem="its outbox takes nothing: No space left on device",
        ),
    ]  # fmt: skip


def _worker(name: str, number: int, pool: str, **changes: object) -> WorkerInfo:
    fields: dict[str, object] = {
        "worker_id": f"{name}#{number:08x}",
        "name": name,
        "pool": pool,
        "model": pool,
        "engine": "vllm",
        "engine_version": "0.32.0",
        "slots": 128,
        "host": f"node-{number}.rack-a.internal",
        "metrics_url": "",
        "figures": EngineFigures(
            kv_used=0.11 * number,
            batch_used=0.92 / number,
            step_us=11_800 + 900 * number,
            prefix_asked_tokens=48_000,
            prefix_hit_tokens=7_000 * number,
            preemptions=3 * (number - 1),
            drafted_tokens=9_000 if number == 1 else None,
            accepted_tokens=6_300 if number == 1 else None,
            adapters_in_slots=4,
            adapters_in_memory=10 + number,
        ),
        "gpus": [_gpu(number)],
    }
    return worker_info(**(fields | changes))


def _gpu(number: int, **changes: object) -> GpuFigures:
    fields: dict[str, object] = {
        "uuid": f"GPU-{number:08d}-70c4-3d2e-a1b7-2f60c1d5e9aa",
        "name": "NVIDIA H100 80GB HBM3",
        "index": number % 2,
        "busy": 0.97 - number / 20,
        "memory_used_bytes": 71 * _GIB,
        "memory_total_bytes": 80 * _GIB,
        "power_watts": 640.0 - 30 * number,
        "power_limit_watts": 700.0,
        "celsius": 58 + number,
        "sm_clock_mhz": 1980 - 15 * number,
        "memory_clock_mhz": 2619,
        "throttling": [],
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
    }
    return GpuFigures(**(fields | changes))  # type: ignore[arg-type]
