"""The minutes, days and months that reservations count in, over a real Redis; time is ours."""

import calendar
from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.policy import LimitName
from inference.admission.gate import Admission
from inference.charges import NOTHING
from inference.errors import LimitReached
from tests.support.gateways.callers import FREE, a_caller, a_limit, tokens
from tests.support.gateways.reservations import (
    HOUR_MS,
    MINUTE_MS,
    START_MS,
    Ask,
    Time,
    refusing,
    settled,
    used,
)
from tests.support.gateways.service import a_tier


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
