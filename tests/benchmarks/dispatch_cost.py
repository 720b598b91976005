"""What a request's way through reserve and dispatch takes of Redis, with a long queue.

    python -m tests.benchmarks.dispatch_cost [--tenants 10000] [--queued 100000]

Each function is called alone many times between two readings, in the steady state: the pool full,
everybody waiting, each finish handing its slot on to the next (which is the claim). Two figures:
the time of the functions as commandstats has it, on the clock; and the CPU time of Redis's main
thread, reading and answering the calls included.
"""

import argparse
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import LimitScope, ScopedLimit, packed
from inference.admission.reservations import ReservationRequest
from inference.redis_functions import ADMISSION, library_text
from tests.support.dispatch.virtual_pool import START_MS, Ask, VirtualPool
from tests.support.servers import servers

WORKER, SLOTS, CALLS, BATCH = "worker#1", 64, 10_000, 500
ENVELOPE_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class Reading:
    """Microseconds: of the functions, and of the main thread's CPU."""

    functions: float
    cpu: float

    def since(self, before: "Reading", calls: int) -> "Reading":
        return Reading((self.functions - before.functions) / calls, (self.cpu - before.cpu) / calls)

    def times(self, factor: float) -> "Reading":
        return Reading(self.functions * factor, self.cpu * factor)


def read(redis: "Redis") -> Reading:
    stats, cpu = redis.info("commandstats"), redis.info("cpu")
    seconds = cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]
    return Reading(stats.get("cmdstat_fcall", {}).get("usec", 0), seconds * 1e6)


def medians(readings: list[Reading]) -> Reading:
    return Reading(
        median(each.functions for each in readings), median(each.cpu for each in readings)
    )


class Cost:
    """One pool with a long queue, and how long Redis takes over each function."""

    def __init__(self, redis: "Redis", tenants: int) -> None:
        self.redis = redis
        self.pool = VirtualPool(redis)
        self.tenants = tenants
        self._random = random.Random(1)
        self._number = 0
        self.running: deque[str] = deque()

    def fill(self, queued: int) -> None:
        self.pool.register(WORKER)
        self.enqueue(queued)
        self.running.extend(each.request_id for each in self.pool.claim(WORKER, SLOTS))

    def enqueue(self, count: int) -> None:
        """By tenants in turn, each with a few projects and keys."""
        for first in range(0, count, BATCH):
            calls = [self._ask() for _ in range(min(BATCH, count - first))]
            self.pool.call_all(calls)

    def settle(self, count: int) -> None:
        """Of full workers; each request is further on than its estimate at one time in six."""
        for turn in range(count):
            lines = [(name, 1, 100, 300 if (turn + n) % 6 == 0 else 50)
                     for n, name in enumerate(self.running)]  # fmt: skip
            self.pool.settle(WORKER, lines)

    def finish(self, count: int) -> None:
        for _ in range(0, count, SLOTS):
            names = [self.running.popleft() for _ in range(len(self.running))]
            self.pool.now_ms += 500
            heartbeats = keys.pool_heartbeats(self.pool.name)
            self.redis.zadd(heartbeats, {WORKER: self.pool.now_ms})
            self.pool.call_all([self.pool.finish_call(name, 1, 100, 120) for name in names])
            self.running.extend(each.request_id for each in self.pool.inbox(WORKER))

    def cost(self, work: Callable[[int], None], count: int, calls: int) -> "Reading":
        """Of Redis, a call: the medians of batches of `count`, all of `calls`."""
        found = []
        for _ in range(0, calls, count):
            before = read(self.redis)
            work(count)
            found.append(read(self.redis).since(before, count))
        return medians(found)

    def _ask(self) -> tuple[Any, ...]:
        self._number += 1
        tenant = self._number % self.tenants
        return self.pool.enqueue_call(
            Ask(
                request_id=f"{self._number:032x}",
                tenant=f"tenant-{tenant:026d}",
                project=f"project-{self._random.randrange(3):025d}",
                key=f"key-{self._random.randrange(3):029d}",
                weight=1 + tenant % 4,
                output=512,
                seconds=100_000,
                payload=ENVELOPE_BYTES,
            )
        )


def reserve_cost(redis: "Redis", tenants: int) -> Reading:
    """Of Redis, a `reserve` with six limits at three levels."""
    scopes = [
        (LimitScope.TIER, LimitName.REQUESTS_PER_MINUTE),
        (LimitScope.TIER, LimitName.CONCURRENT_REQUESTS),
        (LimitScope.TIER, LimitName.TOKENS_PER_MINUTE),
        (LimitScope.TENANT, LimitName.TOKENS_PER_MONTH),
        (LimitScope.PROJECT, LimitName.SPEND_PER_MONTH),
        (LimitScope.KEY, LimitName.TOKENS_PER_DAY),
    ]
    limits = packed([ScopedLimit(scope, name, 10**15) for scope, name in scopes])
    request = ReservationRequest(
        key_id=f"{1:032x}", project_id=f"{2:032x}", tokens=612, nanos=10_000_000, pool="pool",
        prices=Prices(prompt=1, cached=1, completion=1, permille=1000),
    )  # fmt: skip
    arguments = (request.key_id, request.project_id, request.tokens, request.nanos)
    redis.function_load(library_text(ADMISSION), replace=True)
    found: list[Reading] = []
    # Each tenant's first request, of its day, is not looked at.
    for first in range(-tenants, CALLS, BATCH):
        pipeline = redis.pipeline(transaction=False)
        for number in range(first, first + BATCH):
            prefix = keys.tenant_prefix(f"tenant-{number % tenants:026d}")
            pipeline.fcall(
                keys.FUNCTION_RESERVE, 1, prefix, f"{number + tenants:032x}", *arguments,
                msgspec.msgpack.encode(request), limits,
            )  # fmt: skip
        before = read(redis)
        pipeline.execute()
        if first >= 0:
            found.append(read(redis).since(before, BATCH))
    return medians(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tenants", type=int, default=10_000)
    parser.add_argument("--queued", type=int, default=100_000)
    arguments = parser.parse_args()
    url = servers().dispatch_redis.url
    with Redis.from_url(url, socket_timeout=None) as redis:
        redis.flushall()
        cost = Cost(redis, arguments.tenants)
        cost.fill(arguments.queued)
        waiting, now_ms = cost.pool.waiting(), cost.pool.now_ms - START_MS
        print(f"{waiting:,} wait, of {arguments.tenants:,} tenants, at {now_ms} ms")
        figures = {
            "enqueue": cost.cost(cost.enqueue, BATCH, CALLS),
            "finish and claim of the next": cost.cost(cost.finish, 8 * SLOTS, CALLS),
        }
        per_settle = cost.cost(cost.settle, BATCH // 4, BATCH)
        # A request of 120 tokens at 10 ms is under way for 1.2 s: six settles.
        settle = per_settle.times(6 / SLOTS)
        figures["reserve"] = reserve_cost(redis, arguments.tenants)
        redis.flushall()
    together = Reading(
        sum(each.functions for each in figures.values()), sum(each.cpu for each in figures.values())
    )
    print(f"{'microseconds a request':32}{'functions':>12}{'CPU':>10}")
    for name, reading in (*figures.items(), ("together", together), ("settle, its share", settle)):
        print(f"{name:32}{reading.functions:12.1f}{reading.cpu:10.1f}")


if __name__ == "__main__":
    main()
