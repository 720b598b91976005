"""Reservations at key, project and tenant, over admission.lua and a real Redis; time is ours."""

import calendar
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Outcome, Prices, TokenUsage
from gpu_workers.protocol.policy import Caller, LimitName
from inference.admission import reservations
from inference.admission.gate import Admission
from inference.admission.limits import duration
from inference.admission.reservations import Correction, PoolTarget
from inference.charges import NOTHING, Charge, actual
from inference.dispatch.queue import Dispatch, usage_entry
from inference.errors import LimitReached, PolicyLost, QuotaExhausted
from tenants.money import dollars
from tests.support.gateways.callers import FREE, PRICES, a_caller, a_limit, tokens
from tests.support.gateways.cast import POOL, an_envelope
from tests.support.gateways.service import PEPPER, a_tier

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
# Half past eleven in the evening of the last day of a month.
START_MS = calendar.timegm((2026, 11, 30, 23, 30, 0)) * 1000

Ask = Callable[..., Awaitable[Any]]


class Time:
    """Unix ms; stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def admission(dispatch_redis: Redis, time: Time) -> Admission:
    await dispatch_redis.set(keys.policy_version(), "1")
    return Admission(dispatch_redis, pepper=PEPPER, clock=time)


@pytest.fixture
def ask(admission: Admission) -> Ask:
    """Reserves, or raises."""

    async def reserve(
        request_id: str, caller: Caller, charge: Charge = FREE, *, is_retry: bool = False
    ) -> Any:
        return await admission.reserve(request_id, caller, POOL, charge, PRICES, is_retry=is_retry)

    return reserve


async def refusing(asked: Awaitable[Any]) -> tuple[str, str, int]:
    """Scope, name and value of the limit that refuses."""
    with pytest.raises(LimitReached) as refused:
        await asked
    limit = refused.value.limit
    assert limit is not None
    return limit.scope, limit.limit, limit.limit_value


def settled(request_id: str, charge: Charge, tenant_id: str = "acme") -> list[Correction]:
    return [Correction(tenant_id=tenant_id, request_id=request_id, charge=charge)]


async def used(admission: Admission, caller: Caller) -> dict[str, int]:
    """What is used, by `scope limit`."""
    return {
        f"{each.limit.scope.value} {each.limit.name.value}": each.used
        for each in await admission.limit_statuses(caller)
    }


async def test_nobody_is_admitted_by_a_redis_that_was_not_told_yet_what_is_used(
    ask: Ask, dispatch_redis: Redis
) -> None:
    """A gateway may hold policy that it read before Redis has lost everything."""
    caller = a_caller(tenant_limits=[a_limit(LimitName.BALANCE, 100)])
    await dispatch_redis.delete(keys.policy_version())
    with pytest.raises(PolicyLost):
        await ask("a", caller, tokens(1, nanos=60))
    assert not await dispatch_redis.exists(keys.tenant_reservations("acme"))
    balance: Any = await dispatch_redis.hgetall(keys.tenant_balance("acme"))
    assert not any(map(int, balance.values()))
    await dispatch_redis.set(keys.policy_version(), "2")
    await dispatch_redis.hset(keys.tenant_balance("acme"), "settled", "60")
    with pytest.raises(QuotaExhausted):
        await ask("a", caller, tokens(1, nanos=60))


async def test_what_a_try_left_that_broke_off_is_checked_again(
    ask: Ask, dispatch_redis: Redis
) -> None:
    """Its answer was lost, with a Redis that had not been told yet what is used."""
    caller = a_caller(tenant_limits=[a_limit(LimitName.BALANCE, 100)])
    await ask("a", caller, tokens(1, nanos=60))
    await dispatch_redis.hset(keys.tenant_balance("acme"), "settled", "60")
    with pytest.raises(QuotaExhausted):
        await ask("a", caller, tokens(1, nanos=60), is_retry=True)
    assert not await dispatch_redis.exists(keys.tenant_reservations("acme"))


async def test_asking_again_for_the_same_request_is_free(ask: Ask) -> None:
    caller = a_caller(tier=a_tier(requests_per_minute=1, max_concurrent_requests=1))
    await ask("a", caller)
    await ask("a", caller)
    with pytest.raises(LimitReached):
        await ask("b", caller)


async def test_a_released_request_still_counts_for_the_minute(
    ask: Ask, admission: Admission
) -> None:
    caller = a_caller(tier=a_tier(requests_per_minute=1))
    await ask("a", caller)
    await admission.settle(settled("a", NOTHING))
    assert await refusing(ask("b", caller)) == ("tier", "requests_per_minute", 1)


async def test_the_minute_of_requests_slides_to_the_millisecond(ask: Ask, time: Time) -> None:
    caller = a_caller(tier=a_tier(requests_per_minute=2))
    await ask("a", caller)
    time.now_ms += 10_000
    await ask("b", caller)
    time.now_ms += 49_999
    with pytest.raises(LimitReached) as refused:
        await ask("c", caller)
    assert refused.value.retry_after_ms == 1
    assert refused.value.retry_after_seconds == 1
    time.now_ms += 1
    await ask("c", caller)
    with pytest.raises(LimitReached) as refused:
        await ask("d", caller)
    assert refused.value.retry_after_ms == 10_000


async def test_what_has_left_a_minute_of_requests_does_not_pile_up(
    ask: Ask, time: Time, dispatch_redis: Redis
) -> None:
    window = keys.tenant_request_window("acme", "tenant")
    caller = a_caller(tier=a_tier(requests_per_minute=60, max_concurrent_requests=1_000))
    for number in range(200):
        await ask(f"{number:032x}", caller)
        time.now_ms += 1_000
    assert 60 <= await dispatch_redis.zcard(window) <= 70
    time.now_ms += MINUTE_MS
    await ask("after a pause 1", caller)
    assert await dispatch_redis.zrange(window, 0, -1) == [b"after a pause 1"]


async def test_a_sliding_minute_is_kept_for_as_long_as_it_is_used(
    ask: Ask, time: Time, dispatch_redis: Redis
) -> None:
    names = (LimitName.REQUESTS_PER_MINUTE, LimitName.TOKENS_PER_MINUTE)
    caller = a_caller(limits=[a_limit(name, 10_000) for name in names])
    windows = [
        keys.tenant_request_window("acme", "key:key"),
        keys.tenant_token_window("acme", "key:key"),
    ]
    await ask("first", caller, tokens(1))
    for window in windows:
        await dispatch_redis.pexpire(window, MINUTE_MS)
    for number in range(16):
        time.now_ms += 20_000
        await ask(f"{number:032x}", caller, tokens(1))
    assert all([await dispatch_redis.pttl(window) > 5 * MINUTE_MS for window in windows])


async def test_requests_at_once_are_freed_by_their_end(ask: Ask, admission: Admission) -> None:
    caller = a_caller(tier=a_tier(max_concurrent_requests=1))
    await ask("a", caller)
    assert await refusing(ask("b", caller)) == ("tier", "concurrent_requests", 1)
    await admission.settle([*settled("a", FREE), *settled("never", FREE)])
    await ask("b", caller)


async def test_one_tenants_limits_are_not_anothers(ask: Ask) -> None:
    tier = a_tier(requests_per_minute=1)
    await ask("a", a_caller(tier=tier))
    await ask("b", a_caller("globex", tier=tier))


async def test_keys_and_projects_of_a_tenant_count_apart_and_together(ask: Ask) -> None:
    name = LimitName.REQUESTS_PER_MINUTE
    limits: dict[str, Any] = {
        "limits": [a_limit(name, 1)],
        "project_limits": [a_limit(name, 2)],
        "tenant_limits": [a_limit(name, 3)],
    }
    await ask("a", a_caller(key_id="one", **limits))
    assert await refusing(ask("b", a_caller(key_id="one", **limits))) == ("key", name, 1)
    await ask("b", a_caller(key_id="two", **limits))
    assert await refusing(ask("c", a_caller(key_id="three", **limits))) == ("project", name, 2)
    await ask("c", a_caller(key_id="four", project_id="other", **limits))
    fifth = a_caller(key_id="five", project_id="third", **limits)
    assert await refusing(ask("d", fifth)) == ("tenant", name, 3)


async def test_the_strictest_of_tier_and_tenant_wins(ask: Ask) -> None:
    name = LimitName.REQUESTS_PER_MINUTE
    caller = a_caller(tier=a_tier(requests_per_minute=1), tenant_limits=[a_limit(name, 5)])
    await ask("a", caller)
    assert await refusing(ask("b", caller)) == ("tier", name, 1)


async def test_a_refused_request_counts_nowhere(ask: Ask, admission: Admission) -> None:
    names = (LimitName.TOKENS_PER_DAY, LimitName.TOKENS_PER_MINUTE, LimitName.CONCURRENT_REQUESTS)
    caller = a_caller(
        limits=[a_limit(name, 100) for name in names],
        tenant_limits=[a_limit(LimitName.TOKENS_PER_MONTH, 10)],
    )
    with pytest.raises(LimitReached):
        await ask("a", caller, tokens(11))
    assert set((await used(admission, caller)).values()) == {0}


async def test_a_soft_limit_counts_and_refuses_nothing(ask: Ask, admission: Admission) -> None:
    soft = a_limit(LimitName.TOKENS_PER_MINUTE, 10, is_hard=False)
    caller = a_caller(limits=[soft])
    for request_id in "ab":
        await ask(request_id, caller, tokens(50))
    assert (await used(admission, caller))["key tokens_per_minute"] == 100


async def test_the_minute_of_tokens_never_admits_more_and_forgets_within_a_second(
    ask: Ask, time: Time, admission: Admission
) -> None:
    caller = a_caller(limits=[a_limit(LimitName.TOKENS_PER_MINUTE, 100)])
    time.now_ms += 900
    await ask("a", caller, tokens(60))
    time.now_ms += 30_000
    await ask("b", caller, tokens(40))
    with pytest.raises(LimitReached) as refused:
        await ask("c", caller, tokens(10))
    wait_ms = refused.value.retry_after_ms
    assert wait_ms is not None
    assert 30_000 <= wait_ms <= 31_000
    time.now_ms += wait_ms - 1
    with pytest.raises(LimitReached):
        await ask("c", caller, tokens(10))
    time.now_ms += 1
    await ask("c", caller, tokens(60))
    time.now_ms += 10 * MINUTE_MS
    assert (await used(admission, caller))["key tokens_per_minute"] == 0


async def test_tokens_that_were_not_needed_come_back_to_their_minute(
    ask: Ask, time: Time, admission: Admission
) -> None:
    caller = a_caller(limits=[a_limit(LimitName.TOKENS_PER_MINUTE, 100)])
    await ask("a", caller, tokens(100))
    time.now_ms += 5_000
    await admission.true_down(settled("a", tokens(70)))
    await admission.true_down(settled("a", tokens(90)))
    assert (await used(admission, caller))["key tokens_per_minute"] == 70
    await ask("b", caller, tokens(30))
    await admission.settle(settled("a", tokens(20)))
    await admission.settle(settled("a", tokens(20)))
    assert (await used(admission, caller))["key tokens_per_minute"] == 50


async def test_a_reservation_settles_into_the_day_and_month_it_was_made_in(
    ask: Ask, time: Time, admission: Admission, dispatch_redis: Redis
) -> None:
    names = (LimitName.TOKENS_PER_DAY, LimitName.TOKENS_PER_MONTH, LimitName.SPEND_PER_MONTH)
    caller = a_caller(limits=[a_limit(name, 1000) for name in names])
    await ask("a", caller, tokens(500, nanos=700))
    time.now_ms += HOUR_MS
    assert await used(admission, caller) == {
        "tier requests_per_minute": 0,
        "tier concurrent_requests": 1,
        "key tokens_per_day": 0,
        "key tokens_per_month": 0,
        "key spend_per_month": 0,
    }
    await admission.settle(settled("a", tokens(30, nanos=40)))
    day = await dispatch_redis.hgetall(keys.tenant_day("acme", START_MS // (24 * HOUR_MS)))
    month = await dispatch_redis.hgetall(keys.tenant_month("acme", 202611))
    assert day == {
        b"key:key": b"30", b"project:project": b"30", b"tenant": b"30",
        b"key:key:nanos": b"40", b"project:project:nanos": b"40", b"tenant:nanos": b"40",
    }  # fmt: skip
    assert await dispatch_redis.hgetall(keys.tenant_balance("acme")) == {
        b"settled": b"40",
        b"reserved": b"0",
    }
    assert month[b"tenant:tokens"] == b"30"
    assert month[b"key:key:nanos"] == b"40"
    assert set((await used(admission, caller)).values()) == {0}


async def test_everything_that_is_counted_is_forgotten_some_day(
    ask: Ask, dispatch_redis: Redis, admission: Admission
) -> None:
    await ask("a", a_caller(limits=[a_limit(LimitName.TOKENS_PER_MINUTE, 10)]), tokens(1))
    await admission.settle(settled("a", FREE))
    left = [key async for key in dispatch_redis.scan_iter("{t:acme}*")]
    assert left
    assert all([await dispatch_redis.ttl(key) > 0 for key in left])


@pytest.mark.parametrize(
    ("name", "wait_ms"),
    [
        (LimitName.TOKENS_PER_DAY, HOUR_MS // 2),
        (LimitName.TOKENS_PER_MONTH, HOUR_MS // 2),
        (LimitName.SPEND_PER_MONTH, HOUR_MS // 2),
    ],
)
async def test_a_spent_period_is_free_again_when_it_ends(
    ask: Ask, time: Time, name: LimitName, wait_ms: int
) -> None:
    caller = a_caller(limits=[a_limit(name, 10)])
    await ask("a", caller, tokens(8, nanos=8))
    with pytest.raises(LimitReached) as refused:
        await ask("b", caller, tokens(5, nanos=5))
    assert refused.value.retry_after_ms == wait_ms
    assert refused.value.should_retry is False
    time.now_ms += wait_ms - 1
    with pytest.raises(LimitReached):
        await ask("b", caller, tokens(5, nanos=5))
    time.now_ms += 1
    await ask("b", caller, tokens(5, nanos=5))


@pytest.mark.parametrize(
    ("moment", "month", "days_left"),
    [
        ((2028, 2, 28, 12, 0, 0), 202802, 1.5),
        ((2028, 2, 29, 0, 0, 0), 202802, 1),
        ((2100, 2, 28, 0, 0, 0), 210002, 1),
        ((2026, 12, 31, 0, 0, 0), 202612, 1),
        ((2027, 1, 1, 0, 0, 0), 202701, 31),
        ((2027, 3, 1, 0, 0, 0), 202703, 31),
    ],
)
async def test_months_are_the_calendars(
    ask: Ask, time: Time, dispatch_redis: Redis, moment: Any, month: int, days_left: float
) -> None:
    time.now_ms = calendar.timegm(moment) * 1000
    caller = a_caller(limits=[a_limit(LimitName.TOKENS_PER_MONTH, 10)])
    await ask("a", caller, tokens(10))
    assert await dispatch_redis.exists(keys.tenant_month("acme", month))
    with pytest.raises(LimitReached) as refused:
        await ask("b", caller, tokens(1))
    assert refused.value.retry_after_ms == days_left * 24 * HOUR_MS


async def test_spent_money_is_told_in_openais_words(ask: Ask) -> None:
    caller = a_caller(limits=[a_limit(LimitName.SPEND_PER_MONTH, 10 * 10**9)])
    await ask("a", caller, tokens(1, nanos=9_990_000_000))
    with pytest.raises(QuotaExhausted) as refused:
        await ask("b", caller, tokens(1, nanos=20_000_000))
    wire = refused.value.to_wire()
    assert (wire.status, wire.type, wire.code) == (429, "insufficient_quota", "insufficient_quota")
    assert wire.should_retry is False
    assert wire.limit is not None
    assert (wire.limit.used, wire.limit.reset_seconds) == (9_990_000_000, 30 * 60)
    assert all(amount in wire.message for amount in ("$10.00", "$9.99", "$0.02"))


async def test_what_can_never_fit_says_so(ask: Ask) -> None:
    name = LimitName.TOKENS_PER_MINUTE
    with pytest.raises(LimitReached) as refused:
        await ask("a", a_caller(limits=[a_limit(name, 10)]), tokens(11))
    wire = refused.value.to_wire()
    assert wire.code == "request_exceeds_limit"
    assert wire.should_retry is False
    assert wire.retry_after_seconds is None
    assert wire.limit is not None
    assert wire.limit.reset_seconds is None


async def test_a_limit_of_nothing_refuses_everything(ask: Ask) -> None:
    with pytest.raises(LimitReached) as refused:
        await ask("a", a_caller(tier=a_tier(requests_per_minute=0)))
    assert refused.value.to_wire().code == "request_exceeds_limit"


async def test_of_several_limits_the_one_that_lasts_longest_is_told(ask: Ask) -> None:
    caller = a_caller(
        limits=[a_limit(LimitName.REQUESTS_PER_MINUTE, 1), a_limit(LimitName.TOKENS_PER_DAY, 5)]
    )
    await ask("a", caller, tokens(5))
    assert await refusing(ask("b", caller, tokens(5))) == ("key", "tokens_per_day", 5)


async def test_functions_come_back_after_redis_lost_them(
    ask: Ask, admission: Admission, dispatch_redis: Redis
) -> None:
    await dispatch_redis.function_flush()
    await ask("a", a_caller())
    await dispatch_redis.function_flush()
    await admission.settle(settled("a", FREE))
    assert not await dispatch_redis.exists(keys.tenant_open("acme"))


async def test_the_sweeper_settles_only_what_no_pool_holds_open(
    ask: Ask, admission: Admission, dispatch_redis: Redis, time: Time
) -> None:
    """One is open, one never got into the queue, one ended and its gateway died before it told."""
    dispatch = Dispatch(dispatch_redis)
    caller = a_caller(limits=[a_limit(LimitName.TOKENS_PER_DAY, 1000)])
    for request_id in ("open", "crashed", "ended"):
        await ask(request_id, caller, tokens(100))
    for request_id in ("open", "ended"):
        await dispatch.enqueue(an_envelope(request_id=request_id), max_queue_length=10)
    usage = TokenUsage(prompt_tokens=30, completion_tokens=3)
    record = usage_entry(
        an_envelope(request_id="ended"),
        attempt=0,
        outcome=Outcome.CANCELLED,
        error_code=None,
        usage=usage,
    )
    assert await dispatch.finish(codec.decode_usage_entry(codec.encode(record)))
    assert await reservations.sweep(dispatch_redis, clock=time) == 0
    odd = keys.tenant_reservations("acme"), "odd", b"\x90"
    await dispatch_redis.hset(*odd)  # which stops no other from being settled
    assert await reservations.sweep(dispatch_redis, age_ms=-1000, clock=time) == 2
    await dispatch_redis.hdel(*odd[:2])
    assert await dispatch_redis.hkeys(keys.tenant_reservations("acme")) == [b"open"]
    assert (await used(admission, caller))["key tokens_per_day"] == 133
    await admission.settle(settled("ended", tokens(33)))
    assert (await used(admission, caller))["key tokens_per_day"] == 133


async def test_the_sweeper_looks_for_a_request_wherever_it_may_be(
    admission: Admission, dispatch_redis: Redis, time: Time
) -> None:
    """Its model was saturated, and the one that answers instead has another pool and price."""
    dispatch = Dispatch(dispatch_redis)
    caller = a_caller(limits=[a_limit(LimitName.SPEND_PER_MONTH, 10**9)])
    smaller = PoolTarget("pool-of-small", Prices(1000, 1000, 1000, 1000))
    await admission.reserve(
        "a", caller, POOL, Charge(tokens=100, nanos=10**8), PRICES, fallback=smaller
    )
    envelope = an_envelope(request_id="a", pool=smaller.pool)
    await dispatch.enqueue(envelope, max_queue_length=10)
    assert await reservations.sweep(dispatch_redis, age_ms=-1000, clock=time) == 0
    usage = TokenUsage(prompt_tokens=30, completion_tokens=3)
    await dispatch.finish(
        usage_entry(envelope, attempt=0, outcome=Outcome.CANCELLED, error_code=None, usage=usage)
    )
    assert await reservations.sweep(dispatch_redis, age_ms=-1000, clock=time) == 1
    assert (await used(admission, caller))["key spend_per_month"] == 33


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.EXPIRED])
def test_what_was_never_run_costs_nothing(outcome: Outcome) -> None:
    assert actual(outcome, TokenUsage(prompt_tokens=9), PRICES) == NOTHING


def test_durations_and_money_are_told_shortly() -> None:
    assert [duration(ms) for ms in (6, 1000, 1001, 123_000, 3_723_000)] == [
        "6ms",
        "1s",
        "2s",
        "2m3s",
        "1h2m3s",
    ]
    assert [dollars(nanos) for nanos in (0, 12_500_000_000, 125_000)] == [
        "$0.00",
        "$12.50",
        "$0.000125",
    ]
