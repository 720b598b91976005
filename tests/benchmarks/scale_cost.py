"""What a request and a token cost one gateway and Redis, and what Redis keeps of tenants, requests
and workers: the figures behind docs/scale.md.

    python -m tests.benchmarks.scale_cost [--rounds 5] [--streams 32] [--requests 192] [--out FILE]

A gateway and a simulated worker in processes of their own, all features on. Answers of different
lengths alternate; CPU time and bytes of a request are fitted as a constant and a part for each
token. What an idle gateway and Redis take in the same time is subtracted.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression
from time import perf_counter
from typing import Any, Final
from urllib.parse import urlsplit

from redis import Redis as SyncRedis
from redis.asyncio import Redis

from inference.redis_functions import LIBRARIES, library_text
from tests.benchmarks.dispatch.cost import Cost, reserve_many
from tests.support.gateways.cast import MODEL
from tests.support.gateways.processes import a_gateway_process, a_sim_worker
from tests.support.gateways.service import Snapshot, a_tier
from tests.support.servers import servers

LENGTHS: Final = (8, 64, 256)
REQUESTS: Final = 192
IDLE_SECONDS: Final = 3.0
STEP_MS: Final = "10"
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Use:
    """CPU in ms of the gateway and of Redis's main thread; bytes in and out of Redis."""

    gateway: float
    redis: float
    redis_in: float
    redis_out: float

    def less(self, other: "Use", factor: float = 1.0) -> "Use":
        return Use(
            *(mine - factor * theirs for mine, theirs in zip(_of(self), _of(other), strict=True))
        )


def _of(use: Use) -> tuple[float, float, float, float]:
    return use.gateway, use.redis, use.redis_in, use.redis_out


class Meter:
    """Reads what the two processes have used so far."""

    def __init__(self, redis: "Redis", gateway_pid: int) -> None:
        self._redis = redis
        self._stat = Path(f"/proc/{gateway_pid}/stat")

    async def read(self) -> Use:
        fields = self._stat.read_text().rpartition(")")[2].split()
        cpu: dict[str, Any] = await self._redis.info("cpu")
        stats: dict[str, Any] = await self._redis.info("stats")
        seconds = cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]
        return Use(
            gateway=1000 * (int(fields[11]) + int(fields[12])) / TICKS,
            redis=1000 * seconds,
            redis_in=stats["total_net_input_bytes"],
            redis_out=stats["total_net_output_bytes"],
        )

    async def use_of(self, work: Callable[[], Awaitable[None]]) -> tuple[Use, float]:
        """What was used while the work was done, and for how many seconds."""
        before, began = await self.read(), perf_counter()
        await work()
        return (await self.read()).less(before), perf_counter() - began


async def stream(url: str, key: str, tokens: int) -> None:
    """One streamed answer, read to its end."""
    parts = urlsplit(url)
    body = json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "What is Penstock?"}],
            "stream": True,
            "max_tokens": tokens,
            "ignore_eos": True,
        }
    ).encode()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    answer = await reader.read(-1)
    writer.close()
    if b"data: [DONE]" not in answer:
        raise RuntimeError(f"expected a whole stream, got {answer[-300:]!r}")


async def many_streams(url: str, key: str, streams: int, tokens: int, requests: int) -> None:
    left = [tokens] * requests

    async def client() -> None:
        while left:
            await stream(url, key, left.pop())

    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(client())


async def running_costs(rounds: int, streams: int, requests: int) -> dict[str, dict[str, float]]:
    """Of a request and of a token, by what is used."""
    url = servers().dispatch_redis.url
    found: dict[int, list[Use]] = {length: [] for length in LENGTHS}
    async with Redis.from_url(url, socket_timeout=None) as redis:
        await redis.flushall()
        for library in LIBRARIES:
            await redis.function_load(library_text(library), replace=True)
        snapshot = Snapshot(redis)
        tier = a_tier(requests_per_minute=10**6, max_concurrent_requests=10**6)
        key = await snapshot.add_key("Acme", tier=tier)
        await snapshot.add_model(MODEL)
        async with (
            a_sim_worker(url, PENSTOCK_SIM_STEP_MS=STEP_MS, PENSTOCK_WORKER_SLOTS=str(streams)),
            a_gateway_process(url) as (address, process),
        ):
            meter = Meter(redis, process.pid)
            await many_streams(address, key, streams, LENGTHS[-1], requests)  # warm-up
            idle, seconds = await meter.use_of(lambda: asyncio.sleep(IDLE_SECONDS))
            for _ in range(rounds):
                for length, uses in found.items():
                    use, took = await meter.use_of(
                        lambda length=length: many_streams(  # type: ignore[misc]
                            address, key, streams, length, requests
                        )
                    )
                    uses.append(use.less(idle, took / seconds))
    return {
        name: fitted(found, at, requests)
        for at, name in enumerate(("gateway", "redis", "in", "out"))
    }


def fitted(found: dict[int, list[Use]], at: int, requests: int) -> dict[str, float]:
    """A request's constant and its part for each token."""
    tokens = [length for length, uses in found.items() for _ in uses]
    used = [_of(use)[at] / requests for uses in found.values() for use in uses]
    slope, intercept = linear_regression(tokens, used)
    return {"request": intercept, "token": slope}


def kept_bytes() -> dict[str, float]:
    """Of Redis's memory, by what it is kept for."""
    tenants, queued, workers = 2_000, 20_000, 100

    def used(redis: "SyncRedis") -> int:
        return int(redis.info("memory")["used_memory"])

    with SyncRedis.from_url(servers().dispatch_redis.url, socket_timeout=None) as redis:
        redis.flushall()
        cost = Cost(redis, tenants, workers)
        marks = [used(redis)]
        cost.enqueue(tenants)
        marks.append(used(redis))
        cost.enqueue(queued)
        marks.append(used(redis))
        for worker in cost.workers:
            cost.pool.register(worker)
            cost.pool.claim(worker, 0, kv_tokens=10_000)
        marks.append(used(redis))
        reserve_many(redis, tenants)
        marks.append(used(redis))
        redis.flushall()
    first, second, third, fourth = (after - before for before, after in pairwise(marks))
    request = second / queued
    return {
        "queued request of 2,000 bytes": request,
        "tenant in a pool": first / tenants - request,
        "worker": third / workers,
        "tenant with a reservation": fourth / tenants,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="a round and length")
    parser.add_argument("--out", type=Path, help="a file for the figures as JSON")
    arguments = parser.parse_args()
    running = asyncio.run(running_costs(arguments.rounds, arguments.streams, arguments.requests))
    kept = kept_bytes()
    print(f"{arguments.streams} streams, answers of {LENGTHS} tokens, {arguments.rounds} rounds")
    units = {"gateway": "CPU us", "redis": "CPU us", "in": "bytes", "out": "bytes"}
    for name, parts in running.items():
        factor = 1000 if units[name] == "CPU us" else 1
        print(
            f"{name:10} a request {factor * parts['request']:10.1f}   a token "
            f"{factor * parts['token']:8.2f} {units[name]}"
        )
    for name, size in kept.items():
        print(f"{name:32}{size:10.0f} bytes")
    if arguments.out:
        whole = {"running": running, "kept": kept}
        arguments.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
