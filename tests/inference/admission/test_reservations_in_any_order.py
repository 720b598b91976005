"""Reserve, true down, settle, release, crash, sweep and the passing of time, in any order: no limit
is ever exceeded, and nothing leaks. Hypothesis plays against a model that recounts everything."""

import asyncio
import calendar
import time as clock
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Outcome, Prices, TokenUsage
from gpu_workers.protocol.policy import QUOTA_NAMES, Caller, Limit, LimitName
from inference.admission import reservations
from inference.admission.gate import Admission
from inference.admission.limits import ScopedLimit, cost, limits_of
from inference.admission.reservations import Correction
from inference.charges import NOTHING, Charge, actual, worst_case
from inference.dispatch.queue import usage_entry
from inference.errors import LimitReached
from tests.support.gateways.callers import a_caller
from tests.support.gateways.cast import POOL, an_envelope
from tests.support.gateways.service import PEPPER, a_tier

_T = TypeVar("_T")

# A minute and a half before the day and the month end.
START_MS = calendar.timegm((2026, 11, 30, 23, 58, 30)) * 1000
DAY_MS = 86_400_000
PRICES = Prices(prompt=700, cached=300, completion=2_100, permille=1_250)
KEYS = (("one", "web"), ("two", "web"), ("three", "jobs"))
STEPS_MS = (1, 7, 499, 1_000, 17_003, 59_999, 60_000, 61_001, 121_500, DAY_MS)

amounts = st.integers(0, 60)


def lists_of(names: Iterable[LimitName]) -> st.SearchStrategy[list[Limit]]:
    values, is_hard = st.integers(1, 150), st.booleans()
    limits = st.builds(Limit, name=st.sampled_from(list(names)), value=values, is_hard=is_hard)
    return st.lists(limits, max_size=5, unique_by=lambda limit: limit.name)


limit_lists = lists_of(QUOTA_NAMES)


@dataclass
class Reserved:
    """A request in the model. `charge` is what it counts for now."""

    request_id: str
    caller: Caller
    at_ms: int
    charge: Charge
    sequences: int = 1
    is_open: bool = True
    is_orphan: bool = False
    record: TokenUsage | None = None


class Reservations(RuleBasedStateMachine):
    """The machine. Each rule does to Redis what its name says, and the same to the model."""

    requests = Bundle("requests")
    redis_url: str

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = START_MS
        self.admitted: list[Reserved] = []
        self.asked = 0
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.redis = Redis.from_url(self.redis_url)
        self.admission = Admission(self.redis, pepper=PEPPER, clock=lambda: self.now_ms)

    @initialize(
        of_tenant=lists_of(LimitName),
        of_projects=st.tuples(limit_lists, limit_lists),
        of_keys=st.tuples(limit_lists, limit_lists, limit_lists),
        tokens_per_minute=st.none() | st.integers(20, 200),
    )
    def set_limits(
        self,
        of_tenant: list[Limit],
        of_projects: tuple[list[Limit], ...],
        of_keys: tuple[list[Limit], ...],
        tokens_per_minute: int | None,
    ) -> None:
        tier = a_tier(
            requests_per_minute=9, max_concurrent_requests=6, tokens_per_minute=tokens_per_minute
        )
        projects = dict(zip(("web", "jobs"), of_projects, strict=True))
        self.callers = [
            a_caller(
                key_id=key,
                project_id=project,
                tier=tier,
                tenant_limits=of_tenant,
                limits=limits,
                project_limits=projects[project],
            )
            for (key, project), limits in zip(KEYS, of_keys, strict=True)
        ]
        self.run(self.redis.flushdb())
        self.run(self.redis.set(keys.policy_version(), "1"))

    @rule(
        target=requests,
        which=st.integers(0, 2),
        prompt=amounts,
        output=amounts,
        sequences=st.sampled_from([1, 1, 2, 5]),
    )
    def reserve(self, which: int, prompt: int, output: int, sequences: int) -> Reserved | None:
        caller, charge = self.callers[which], worst_case(prompt, output, PRICES)
        self.asked += 1
        request_id = f"request-{self.asked}"
        fits = all(
            self.count(caller, limit) + cost(limit.name, charge, sequences) <= limit.value
            for limit in limits_of(caller)
            if limit.is_hard
        )
        try:
            self.run(
                self.admission.reserve(
                    request_id, caller, POOL, charge, PRICES, sequences=sequences
                )
            )
        except LimitReached as error:
            assert not fits, error.limit
            return None
        assert fits
        reserved = Reserved(request_id, caller, self.now_ms, charge, sequences)
        self.admitted.append(reserved)
        self.run(self.redis.zadd(keys.pool_open_requests(POOL), {request_id: self.now_ms}))
        return reserved

    @rule(request=requests)
    def reserve_again(self, request: Reserved | None) -> None:
        if request is not None and request.is_open:
            self.run(
                self.admission.reserve(
                    request.request_id,
                    request.caller,
                    POOL,
                    request.charge,
                    PRICES,
                    sequences=request.sequences,
                )
            )

    @rule(request=requests, share=st.integers(0, 120))
    def true_down(self, request: Reserved | None, share: int) -> None:
        if request is None:
            return
        tokens, nanos = (each * share // 100 for each in self.whole(request))
        self.run(self.admission.true_down(correction(request, Charge(tokens=tokens, nanos=nanos))))
        if request.is_open:
            request.charge = Charge(
                tokens=min(tokens, request.charge.tokens), nanos=min(nanos, request.charge.nanos)
            )

    @rule(request=requests, share=st.integers(0, 100))
    def settle(self, request: Reserved | None, share: int) -> None:
        if request is None:
            return
        tokens, nanos = (each * share // 100 for each in self.whole(request))
        self.end(request, Charge(tokens=tokens, nanos=nanos))

    @rule(request=requests)
    def release(self, request: Reserved | None) -> None:
        if request is not None:
            self.end(request, NOTHING)

    @rule(request=requests, has_run=st.booleans(), prompt=st.integers(0, 3))
    def lose_the_gateway(self, request: Reserved | None, has_run: bool, prompt: int) -> None:
        """The request is no more, and whoever should settle it neither."""
        if request is None or not request.is_open or request.is_orphan:
            return
        request.is_orphan = True
        self.run(self.redis.zrem(keys.pool_open_requests(POOL), request.request_id))
        if has_run and prompt <= request.charge.tokens:
            request.record = TokenUsage(prompt_tokens=prompt)
            entry = usage_entry(
                an_envelope(request_id=request.request_id),
                attempt=1,
                outcome=Outcome.CANCELLED,
                error_code=None,
                usage=request.record,
            )
            key = keys.pool_request(POOL, request.request_id)
            self.run(self.redis.hset(key, "record", codec.encode(entry)))

    @rule()
    def sweep(self) -> None:
        swept = self.run(reservations.sweep(self.redis, clock=lambda: self.now_ms))
        due = [
            each
            for each in self.admitted
            if each.is_open
            and each.is_orphan
            and each.at_ms <= self.now_ms - reservations.SWEEP_AGE_MS
        ]
        assert swept == len(due)
        for each in due:
            usage = each.record
            each.is_open = False
            each.charge = NOTHING if usage is None else actual(Outcome.CANCELLED, usage, PRICES)

    @rule(step_ms=st.sampled_from(STEPS_MS))
    def let_time_pass(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @invariant()
    def what_is_counted_is_what_was_used(self) -> None:
        if not hasattr(self, "callers"):
            return
        for caller in self.callers:
            for status in self.run(self.admission.limit_statuses(caller)):
                assert status.used == self.count(caller, status.limit), status
                if status.limit.is_hard:
                    assert status.used <= status.limit.value, status

    def teardown(self) -> None:
        try:
            for request in self.admitted:
                self.end(request, NOTHING)
            tenant = keys.tenant_prefix("acme")
            assert not self.run(self.redis.exists(keys.tenant_open("acme")))
            assert not self.run(self.redis.exists(keys.tenant_reservations("acme")))
            balance: Any = self.run(self.redis.hgetall(keys.tenant_balance("acme")))
            counted = {name.decode(): int(nanos) for name, nanos in balance.items()}
            assert counted.get("reserved", 0) == 0
            assert counted.get("settled", 0) == sum(each.charge.nanos for each in self.admitted)
            days: list[Any] = self.run(self.redis.keys(f"{tenant}:day:*"))
            for key in days:
                day = int(key.decode().rpartition(":")[2])
                held: Any = self.run(self.redis.hget(key, "tenant"))
                ended = (each for each in self.admitted if each.at_ms // DAY_MS == day)
                assert int(held) == sum(each.charge.tokens for each in ended)
        finally:
            self.run(self.redis.aclose())
            self.runner.close()

    # the model ----------------------------------------------------------------------------------

    def end(self, request: Reserved, charge: Charge) -> None:
        self.run(self.admission.settle(correction(request, charge)))
        self.run(self.redis.zrem(keys.pool_open_requests(POOL), request.request_id))
        if request.is_open:
            request.is_open, request.charge = False, charge

    def whole(self, request: Reserved) -> tuple[int, int]:
        return request.charge.tokens, request.charge.nanos

    def count(self, caller: Caller, limit: ScopedLimit) -> int:
        """What is used of a limit, counted anew over all that was ever admitted."""
        mine = [each for each in self.admitted if self.shares(each.caller, caller, limit.scope)]
        match limit.name:
            case LimitName.CONCURRENT_REQUESTS:
                return sum(each.sequences for each in mine if each.is_open)
            case LimitName.REQUESTS_PER_MINUTE:
                return sum(each.at_ms > self.now_ms - 60_000 for each in mine)
            case LimitName.TOKENS_PER_MINUTE:
                first = self.now_ms // 1000 - 60
                return sum(each.charge.tokens for each in mine if each.at_ms // 1000 >= first)
            case LimitName.TOKENS_PER_DAY | LimitName.SPEND_PER_DAY:
                today = [each for each in mine if each.at_ms // DAY_MS == self.now_ms // DAY_MS]
                if limit.name is LimitName.SPEND_PER_DAY:
                    return sum(each.charge.nanos for each in today)
                return sum(each.charge.tokens for each in today)
            case LimitName.BALANCE:
                return sum(each.charge.nanos for each in mine)
        this_month = [each for each in mine if month_of(each.at_ms) == month_of(self.now_ms)]
        if limit.name is LimitName.TOKENS_PER_MONTH:
            return sum(each.charge.tokens for each in this_month)
        return sum(each.charge.nanos for each in this_month)

    def shares(self, one: Caller, other: Caller, scope: str) -> bool:
        if scope == "key":
            return one.key.key_id == other.key.key_id
        return scope != "project" or one.key.project_id == other.key.project_id

    def run(self, work: Awaitable[_T]) -> _T:
        async def wait() -> _T:
            return await work

        return self.runner.run(wait())


def correction(request: Reserved, charge: Charge) -> list[Correction]:
    return [Correction(tenant_id="acme", request_id=request.request_id, charge=charge)]


def month_of(at_ms: int) -> tuple[int, int]:
    return clock.gmtime(at_ms / 1000)[:2]


def test_in_any_order_no_limit_is_exceeded_and_nothing_leaks(dispatch_redis_url: str) -> None:
    class Machine(Reservations):
        redis_url = dispatch_redis_url

    run_state_machine_as_test(Machine)
