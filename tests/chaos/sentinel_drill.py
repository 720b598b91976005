"""The master that Sentinels watch is killed under load: everybody follows to its replica."""

import asyncio
import os
import time

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import keys
from gpu_workers.protocol.redis_url import connect_async
from tests.chaos.load import Load, Target
from tests.chaos.processes import Processes, until
from tests.chaos.report import Report
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.service import PEPPER, Snapshot, a_tier
from tests.support.redis_servers.sentinels import sentinels

STREAMS = 60


async def fail_over(report: Report) -> None:
    """kill -9 of the master that Sentinels watch, under load."""
    drill = "Sentinel failover"
    with sentinels() as watched:
        environ = {
            "PENSTOCK_DISPATCH_REDIS_URL": watched.url,
            "PENSTOCK_GATEWAY_REDIS_URL": watched.url,
            "PENSTOCK_API_KEY_PEPPER": PEPPER.decode(),
            "PENSTOCK_WORKER_POOL": POOL,
        }
        processes = Processes({**os.environ, **environ})
        redis = connect_async(watched.url, socket_timeout=2)
        try:
            gateway = await processes.gateway()
            for name in ("sim-1", "sim-2"):
                await processes.worker(name, watched.url, MODEL)
            key = await _write_policy(redis)
            await until(lambda: _has_workers(redis))
            load = Load([int(gateway.url.rpartition(":")[2])], Target(key, MODEL), streams=STREAMS)
            await load.learn()
            load.start()
            await asyncio.sleep(8)
            killed_at = time.monotonic()
            watched.fail_over()
            await asyncio.sleep(20)
            await load.stop()
            later = [each for each in load.answers if each.ended_at > killed_at]
            new = [each for each in later if each.is_complete and each.begun_at > killed_at]
            first = min((each.ended_at for each in new), default=float("inf")) - killed_at
            lost = [each for each in later if not each.is_complete]
            whole = [each for each in later if each.is_complete]
            report.add(drill, "streams", STREAMS)
            report.add(
                drill,
                "until a request that came then was complete, 5 s of it its own",
                first,
                "s",
                most=15,
            )
            report.add(drill, "streams since then that completed", len(whole))
            report.add(drill, "and that ended typed", len(lost))
            untyped = [each for each in lost if each.error in ("connection_lost", "silence")]
            report.add(drill, "streams that ended without a word", len(untyped), most=0)
            what = "answers with anything stale, twice or missing"
            report.add(drill, what, len(load.wrong()), most=0)
            seconds = await until(lambda: _is_empty(redis))
            report.add(drill, "until queues and leases were empty", seconds, "s", most=60)
        finally:
            await processes.stop()
            await redis.aclose()


async def _write_policy(redis: Redis) -> str:
    snapshot = Snapshot(redis)
    tier = a_tier(requests_per_minute=1_000_000, max_concurrent_requests=10_000)
    key = await snapshot.add_key("Acme", tier=tier)
    await snapshot.add_model(MODEL)
    return key


async def _has_workers(redis: Redis) -> bool:
    return int(await redis.zcard(keys.pool_slots(POOL))) >= 2


async def _is_empty(redis: Redis) -> bool:
    try:
        return not await redis.zcard(keys.pool_open_requests(POOL))
    except (RedisError, OSError):
        return False
