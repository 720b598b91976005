"""What requests that wait for adapters cost Redis, in the calls that look at them.

    python -m tests.benchmarks.fairness.scheduling_cost [--adapters 1000] [--queued 10000]
                                                        [--workers 1 10 100]

Beside requests that need none: of workers with 8 adapter slots, all busy, every request that waits
needs an adapter that its worker has in memory but no slot for (`memory`), that only the other
workers have (`elsewhere`), or that none has (`nowhere`). Each call passes over as many as it may.
"""

import argparse
from typing import Any, Final

from redis import Redis

from gpu_workers.protocol import functions
from gpu_workers.protocol.adapters import AdapterLevel
from tests.benchmarks.dispatch.cost import BATCH, SLOTS, Cost, Reading
from tests.support.dispatch.virtual_pool import Ask
from tests.support.servers import servers

ADAPTER_SLOTS: Final = 8
TENANTS: Final = 50
POSTED_AT_ONCE: Final = 500
CALLS: Final = 1_000
PLACES: Final = ("no adapters", "memory", "elsewhere", "nowhere")


class AdapterCost(Cost):
    """A pool whose requests need adapters that are in one of PLACES; those that run are others."""

    def __init__(self, redis: "Redis", workers: int, adapters: int, place: str) -> None:
        super().__init__(redis, TENANTS, workers)
        self._place = place
        self._names = [f"{number:064x}" for number in range(adapters)]
        self._asked = 0

    def fill(self, queued: int) -> None:
        """Half of the slots of each worker run, the rest is free: so each call looks for more."""
        for number, worker in enumerate(self.workers):
            self.pool.register(worker)
            running = [f"{worker}-{n}" for n in range(ADAPTER_SLOTS)]
            has = self._place == "memory" or (self._place == "elsewhere" and number > 0)
            names = running + (self._names if has else [])
            for first in range(0, len(names), POSTED_AT_ONCE):
                part = names[first : first + POSTED_AT_ONCE]
                self.pool.post(worker, **dict.fromkeys(part, AdapterLevel.MEMORY))
            self._claim(worker)
            for n in range(SLOTS // 2):
                adapter = "" if self._place == "no adapters" else running[n % ADAPTER_SLOTS]
                name = f"{worker}-{n}"
                self.pool.enqueue(Ask(request_id=name, tenant=f"runs-{n}", adapter=adapter))
                self.running[worker].append(name)
        if self._place == "no adapters":
            for worker in self.workers:
                self.pool.claim(worker, SLOTS // 2, adapter_slots=ADAPTER_SLOTS)
        self.enqueue(queued)

    def measured(self) -> dict[str, Reading]:
        return {
            "enqueue": self._cost(
                lambda count: self._taken_by([self._ask() for _ in range(count)]),
                BATCH,
                calls=CALLS,
            ),
            "claim": self._cost(self.idle_claim, BATCH, calls=CALLS),
        }

    def _claim(self, worker: str) -> None:
        self.pool.claim(worker, SLOTS, adapter_slots=ADAPTER_SLOTS)

    def _claim_call(self, worker: str, slots: int) -> tuple[Any, ...]:
        slots = SLOTS // 2 if self._place == "no adapters" else SLOTS
        return functions.CLAIM, worker, b"info", slots, 0, ADAPTER_SLOTS, 1, self.pool.now_ms

    def _ask(self) -> tuple[Any, ...]:
        self._asked += 1
        tenant = self._asked % TENANTS
        mine = self._names[tenant::TENANTS]
        adapter = mine[self._asked // TENANTS % len(mine)]
        return self.pool.enqueue_call(
            Ask(
                request_id=f"{self._asked:032x}",
                tenant=f"tenant-{tenant:026d}",
                seconds=100_000,
                adapter="" if self._place == "no adapters" else adapter,
            )
        )


def measure(redis: "Redis", *, workers: int, adapters: int, queued: int) -> dict[str, Any]:
    found = {}
    for place in PLACES:
        if place == "elsewhere" and workers == 1:
            continue
        redis.flushall()
        cost = AdapterCost(redis, workers, adapters, place)
        cost.fill(queued)
        found[place] = cost.measured()
        if len(started_of(redis, cost)) > 0:
            raise RuntimeError(f"{place}: expected nothing to start")
    return found


def started_of(redis: "Redis", cost: AdapterCost) -> list[str]:
    """Requests that were started meanwhile; their cost would be another one."""
    found = []
    for worker in cost.workers:
        names = {each.request_id for each in cost.pool.inbox(worker)}
        found += [each for each in names if not each.startswith("worker")]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adapters", type=int, default=1_000)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100])
    arguments = parser.parse_args()
    print("| workers | waiting for an adapter in | enqueue, us | claim, us |")
    print("|---|---|---|---|")
    with Redis.from_url(servers().dispatch_redis.url, socket_timeout=None) as redis:
        for workers in arguments.workers:
            found = measure(
                redis, workers=workers, adapters=arguments.adapters, queued=arguments.queued
            )
            for place, figures in found.items():
                cells = " | ".join(f"{each.functions:.0f}" for each in figures.values())
                print(f"| {workers} | {place} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
