"""What the calls of dispatch take where each request needs an adapter.

Workers are simulated as far as the scheduler sees them: what they are told to prefetch they have at
once, up to so many adapters, and what was used the longest ago gives way.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from enum import StrEnum
from itertools import accumulate
from typing import Any, Final, cast

from redis import Redis

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.adapters import AdapterLevel
from tests.benchmarks.dispatch.cost import BATCH, SLOTS, STEP_US, Cost, Reading, taken_by
from tests.support.dispatch.virtual_pool import Ask, started

ADAPTER_SLOTS: Final = 8
LOAD_US: Final = 50_000
ROUNDS_OF_FILLING: Final = 6


class Demand(StrEnum):
    """What requests ask for: no adapter; adapters by Zipf's law, most of them in the memory of some
    worker; or each in turn, so that the next is the one that was used the longest ago."""

    NONE = "no adapters"
    ZIPF = "Zipf"
    COLD = "cold"


# In memory at once. Of 1,000 workers 8 each are fewer than 10,000 adapters.
IN_MEMORY: Final = {Demand.NONE: 0, Demand.ZIPF: 32, Demand.COLD: ADAPTER_SLOTS}


class AdapterCost(Cost):
    """A pool whose requests need adapters as `demand` says; each adapter is one tenant's."""

    def __init__(
        self,
        redis: "Redis",
        tenants: int,
        workers: int,
        *,
        adapters: int,
        demand: Demand,
        typical: Callable[[Iterable[Reading]], Reading],
    ) -> None:
        super().__init__(redis, tenants, workers, typical=typical)
        self._demand = demand
        self._adapters = adapters
        self._popularity = list(accumulate(1 / rank for rank in range(1, adapters + 1)))
        self._memory: dict[str, OrderedDict[str, None]] = {w: OrderedDict() for w in self.workers}
        self._adapter_of: dict[str, str] = {}
        self.posts: list[Reading] = []

    def fill(self, queued: int) -> None:
        self.enqueue(queued + SLOTS * len(self.workers))
        for worker in self.workers:
            self.pool.register(worker)
        for _ in range(ROUNDS_OF_FILLING):
            for first in range(0, len(self.workers), BATCH):
                some = self.workers[first : first + BATCH]
                claims = [self._claim_call(worker, SLOTS) for worker in some]
                self._start_claimed(some, self.pool.call_all(claims))
        for worker in self.workers:
            self.pool.settle(worker, self._lines(worker, 0), step_us=STEP_US)
        self.posts.clear()

    def measured(self) -> dict[str, Reading]:
        found = super().measured()
        return {**found, "post": self._typical(self.posts)} if self.posts else found

    def held(self) -> float:
        """Requests that run on a worker, on average."""
        return sum(map(len, self.running.values())) / len(self.workers)

    def _next_workers(self, count: int) -> list[str]:
        """In turn, of those that run a request that this batch has not ended yet."""
        found: list[str] = []
        ended: Counter[str] = Counter()
        for worker in super()._next_workers(2 * len(self.workers) + count):
            if len(found) < count and len(self.running[worker]) > ended[worker]:
                found.append(worker)
                ended[worker] += 1
        if not found:
            raise RuntimeError("nothing runs on any worker: the pool was not filled")
        return found

    def _claim_call(self, worker: str, slots: int) -> tuple[Any, ...]:
        return functions.CLAIM, worker, b"info", slots, 0, ADAPTER_SLOTS, 1, self.pool.now_ms

    def _taken_by(self, calls: list[tuple[Any, ...]]) -> Reading:
        reading = super()._taken_by(calls)
        self._answer()
        return reading

    def _let_time_pass(self) -> None:
        """Workers beat meanwhile: what was loaded elsewhere than a slot is free finds one so."""
        super()._let_time_pass()
        some = super()._next_workers(BATCH)
        claims = [self._claim_call(worker, SLOTS) for worker in some]
        self._start_claimed(some, self.pool.call_all(claims))

    def _take_from_inboxes(self, workers: list[str]) -> None:
        """They have been read."""

    def _start_claimed(self, workers: list[str], answers: list[Any]) -> None:
        for worker, messages in zip(workers, answers, strict=True):
            self._begin(worker, messages)
        self._answer()

    def _answer(self) -> None:
        """Have the workers read what they were told, and post what they have loaded. What that has
        them told is for the next time: as many loads would follow one another without end."""
        posts = [call for each in self._inboxes() if (call := self._read(*each))]
        if posts:
            self.posts.append(taken_by(self.redis, len(posts), lambda: self.pool.call_all(posts)))

    def _inboxes(self) -> list[tuple[str, list[bytes]]]:
        """What the workers were told since, of those that were."""
        inboxes = {keys.pool_inbox(self.pool.name, each): each for each in self.workers}
        pipeline = self.redis.pipeline(transaction=False)
        for inbox in inboxes:
            pipeline.lrange(inbox, 0, -1)
        pipeline.delete(*inboxes)
        *answers, _ = pipeline.execute()
        told = zip(inboxes.values(), cast(list[list[bytes]], answers), strict=True)
        return [(worker, messages) for worker, messages in told if messages]

    def _read(self, worker: str, messages: list[bytes]) -> tuple[Any, ...] | None:
        """Start what a worker was given, and load what it was told to; return what it posts."""
        self._begin(worker, [each for each in messages if each.startswith(b"assign")])
        memory, levels = self._memory[worker], dict[str, AdapterLevel | None]()
        asked = [each for each in messages if each.startswith(b"prefetch")]
        for adapter in (each.split()[1].decode() for each in asked):
            memory[adapter] = None
            levels[adapter] = AdapterLevel.MEMORY
        in_use = {self._adapter_of[each] for each in self.running[worker]}
        for adapter in [each for each in memory if each not in in_use and each not in levels]:
            if len(memory) > IN_MEMORY[self._demand]:
                del memory[adapter]
                levels[adapter] = None
        loads = {each: LOAD_US for each, level in levels.items() if level}
        return self.pool.post_call(worker, levels, loads) if levels else None

    def _begin(self, worker: str, messages: list[bytes]) -> None:
        names = [started(each).request_id for each in messages]
        self._start(worker, names)
        for name in names:
            adapter = self._adapter_of[name]
            if adapter in self._memory[worker]:
                self._memory[worker].move_to_end(adapter)

    def _request(self, number: int) -> Ask:
        if self._demand is Demand.NONE:
            ask = super()._request(number)
        else:
            which = number % self._adapters
            if self._demand is Demand.ZIPF:
                ranks = range(self._adapters)
                which = self._random.choices(ranks, cum_weights=self._popularity)[0]
            ask = self._request_of(number, which % self.tenants, f"{which:064x}")
        self._adapter_of[ask.request_id] = ask.adapter
        return ask
