"""What each call of reserve and dispatch takes of Redis, in the steady state of a full pool."""

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import msgspec
from redis import Redis

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import LimitScope, ScopedLimit, packed
from inference.admission.reservations import ReservationRequest
from inference.redis_functions import ADMISSION, library_text
from tests.support.dispatch.virtual_pool import Ask, VirtualPool, started

SLOTS: Final = 64
CALLS, BATCH, FILL = 4_000, 50, 500
ENVELOPE_BYTES: Final = 2_000
STEP_US: Final = 20_000
# A request of 120 tokens at 10 ms is under way for 1.2 s: six reports, which its worker shares out.
REPORTS_OF_A_REQUEST: Final = 6


@dataclass(frozen=True, slots=True)
class Reading:
    """Microseconds: of the functions, and of the main thread's CPU."""

    functions: float
    cpu: float

    def since(self, before: "Reading", calls: int) -> "Reading":
        return Reading((self.functions - before.functions) / calls, (self.cpu - before.cpu) / calls)

    def less(self, other: "Reading") -> "Reading":
        return Reading(self.functions, self.cpu - other.cpu)

    def times(self, factor: float) -> "Reading":
        return Reading(self.functions * factor, self.cpu * factor)


def read(redis: "Redis", command: str = "fcall") -> Reading:
    stats, cpu = redis.info("commandstats"), redis.info("cpu")
    seconds = cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]
    return Reading(stats.get(f"cmdstat_{command}", {}).get("usec", 0), seconds * 1e6)


def medians(readings: Iterable[Reading]) -> Reading:
    found = list(readings)
    return Reading(median(each.functions for each in found), median(each.cpu for each in found))


def quickest(readings: Iterable[Reading]) -> Reading:
    """The tenth that was quickest: in the others it shows who else was at work on the machine."""
    found = list(readings)
    return Reading(
        sorted(each.functions for each in found)[len(found) // 10],
        sorted(each.cpu for each in found)[len(found) // 10],
    )


def taken_by(
    redis: "Redis", calls: int, work: Callable[[], Any], command: str = "fcall"
) -> Reading:
    """Of Redis, a call; without what the readings take themselves."""
    before = read(redis, command)
    between = read(redis, command)
    work()
    return read(redis, command).since(between, calls).less(between.since(before, calls))


def together(readings: Iterable[Reading]) -> Reading:
    found = list(readings)
    return Reading(sum(each.functions for each in found), sum(each.cpu for each in found))


class Cost:
    """One pool of full workers with a long queue, and how long Redis takes over each function.
    `typical` makes one reading of those of the batches."""

    def __init__(
        self,
        redis: "Redis",
        tenants: int,
        workers: int,
        *,
        typical: Callable[[Iterable[Reading]], Reading] = quickest,
    ) -> None:
        self.redis = redis
        self._typical = typical
        self.pool = VirtualPool(redis)
        self.tenants = tenants
        self.workers = [f"worker-{number:06d}#1" for number in range(workers)]
        self.running: dict[str, deque[str]] = {worker: deque() for worker in self.workers}
        self._random = random.Random(1)
        self._number = 0
        self._turn = 0

    def fill(self, queued: int) -> None:
        """Who waits comes before the workers do."""
        self.enqueue(queued + SLOTS * len(self.workers))
        for worker in self.workers:
            self.pool.register(worker)
            self._start(worker, [each.request_id for each in self.pool.claim(worker, SLOTS)])
            self.pool.settle(worker, self._lines(worker, 0), step_us=STEP_US)

    def measured(self) -> dict[str, Reading]:
        """Of each call of dispatch, by its short name."""
        return {
            "enqueue": self._cost(
                lambda count: self._taken_by([self._ask() for _ in range(count)]), BATCH
            ),
            "idle claim": self._cost(self.idle_claim, BATCH),
            "claim": self._claim_cost(),
            "progress": self._cost(self.report_progress, BATCH // 10, calls=BATCH * 10),
            "finish": self._cost(self.finish, BATCH),
        }

    def enqueue(self, count: int) -> None:
        """By tenants in turn, each with a few projects and keys."""
        for first in range(0, count, FILL):
            self.pool.call_all([self._ask() for _ in range(min(FILL, count - first))])

    def report_progress(self, count: int) -> Reading:
        """Of full workers; each request is further on than its estimate at one time in six."""
        calls = [
            self.pool.settle_call(worker, self._lines(worker, turn), STEP_US)
            for turn, worker in enumerate(self._next_workers(count))
        ]
        return self._taken_by(calls)

    def idle_claim(self, count: int) -> Reading:
        """The heartbeat of full workers."""
        workers = self._next_workers(count)
        return self._taken_by([self._claim_call(each, len(self.running[each])) for each in workers])

    def finish(self, count: int) -> Reading:
        workers = self._next_workers(count)
        self._let_time_pass()
        reading = self._taken_by(
            [self.pool.finish_call(self.running[each].popleft(), 1, 100, 120) for each in workers]
        )
        self._take_from_inboxes(workers)
        return reading

    def _taken_by(self, calls: list[tuple[Any, ...]]) -> Reading:
        return taken_by(self.redis, len(calls), lambda: self.pool.call_all(calls))

    def _claim_cost(self) -> Reading:
        """Of claims that find a slot free. A worker gets one by ending a request while it posts a
        slot less than it holds, so that none is handed on."""
        found = []
        group = min(BATCH, len(self.workers))
        for _ in range(0, CALLS // 4, group):
            workers = self._next_workers(group)
            ended = [self.running[each].popleft() for each in workers]
            left = {each: len(self.running[each]) for each in workers}
            self.pool.call_all(
                [self._claim_call(each, left[each]) for each in workers]
                + [self.pool.finish_call(each, 1, 100, 120) for each in ended]
            )
            answers: list[Any] = []
            claims = [self._claim_call(each, left[each] + 1) for each in workers]
            found.append(
                taken_by(self.redis, group, lambda: answers.extend(self.pool.call_all(claims)))  # noqa: B023
            )
            self._start_claimed(workers, answers)
        return self._typical(found)

    def _start_claimed(self, workers: list[str], answers: list[Any]) -> None:
        for worker, messages in zip(workers, answers, strict=True):
            if len(messages) != 1:
                raise RuntimeError(f"expected one request a claim, got {len(messages)}")
            self._start(worker, [started(each).request_id for each in messages])

    def _cost(
        self, measure: Callable[[int], Reading], count: int, *, calls: int = CALLS
    ) -> Reading:
        """Of Redis, a call: of batches of `count`, all of `calls`."""
        return self._typical(measure(count) for _ in range(0, calls, count))

    def _start(self, worker: str, request_ids: list[str]) -> None:
        self.running[worker].extend(request_ids)

    def _next_workers(self, count: int) -> list[str]:
        """In turn, however few there are."""
        first, self._turn = self._turn, self._turn + count
        return [self.workers[each % len(self.workers)] for each in range(first, first + count)]

    def _lines(self, worker: str, turn: int) -> list[tuple[str, int, int, int]]:
        return [
            (name, 1, 100, 300 if (turn + n) % REPORTS_OF_A_REQUEST == 0 else 50)
            for n, name in enumerate(self.running[worker])
        ]

    def _claim_call(self, worker: str, slots: int) -> tuple[Any, ...]:
        return functions.CLAIM, worker, b"info", slots, 0, 0, 1, self.pool.now_ms

    def _let_time_pass(self) -> None:
        self.pool.now_ms += 500
        beats = dict.fromkeys(self.workers, self.pool.now_ms)
        self.redis.zadd(keys.pool_heartbeats(self.pool.name), beats)
        self.redis.zadd(keys.pool_gateways(self.pool.name), {"gateway": self.pool.now_ms})

    def _take_from_inboxes(self, workers: list[str]) -> None:
        pipeline = self.redis.pipeline(transaction=False)
        inboxes = {each: keys.pool_inbox(self.pool.name, each) for each in workers}
        for inbox in inboxes.values():
            pipeline.lrange(inbox, 0, -1)
        pipeline.delete(*inboxes.values())
        *answers, _ = pipeline.execute()
        for worker, messages in zip(inboxes, answers, strict=True):
            self._start(worker, [started(each).request_id for each in messages])

    def _ask(self) -> tuple[Any, ...]:
        self._number += 1
        return self.pool.enqueue_call(self._request(self._number))

    def _request(self, number: int) -> Ask:
        return self._request_of(number, number % self.tenants)

    def _request_of(self, number: int, tenant: int, adapter: str = "") -> Ask:
        return Ask(
            request_id=f"{number:032x}",
            tenant=f"tenant-{tenant:026d}",
            project=f"project-{self._random.randrange(3):025d}",
            key=f"key-{self._random.randrange(3):029d}",
            weight=1 + tenant % 4,
            output=512,
            seconds=100_000,
            adapter=adapter,
            payload=ENVELOPE_BYTES,
        )


def reserve_cost(redis: "Redis", tenants: int) -> Reading:
    """Of Redis, a `reserve`. Each tenant's first request, of its day, is not looked at."""
    return quickest(reserve_many(redis, tenants, tenants + CALLS)[tenants // BATCH :])


def reserve_many(redis: "Redis", tenants: int, count: int | None = None) -> list[Reading]:
    """Reserve by tenants in turn, with six limits at three levels; once each where no count is
    given. What a call takes of Redis, by batches."""
    count = count or tenants
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
    for first in range(0, count, BATCH):
        pipeline = redis.pipeline(transaction=False)
        for number in range(first, first + BATCH):
            prefix = keys.tenant_prefix(f"tenant-{number % tenants:026d}")
            pipeline.fcall(
                functions.RESERVE, 1, prefix, f"{number:032x}", *arguments,
                msgspec.msgpack.encode(request), limits,
            )  # fmt: skip
        found.append(taken_by(redis, BATCH, pipeline.execute))
    return found


def ping_cost(redis: "Redis") -> Reading:
    pipeline = redis.pipeline(transaction=False)

    def ping() -> None:
        for _ in range(FILL):
            pipeline.ping()
        pipeline.execute()

    return quickest(taken_by(redis, FILL, ping, "ping") for _ in range(0, 20 * FILL, FILL))
