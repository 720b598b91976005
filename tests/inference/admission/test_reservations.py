"""Reservations at key, project and tenant, over admission.lua and a real Redis; time is ours."""

from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome, TokenUsage
from gpu_workers.protocol.policy import LimitName
from inference.admission.gate import Admission
from inference.admission.limits import duration
from inference.charges import NOTHING, actual
from inference.errors import LimitReached, PolicyLost, QuotaExhausted
from tenants.money import dollars
from tests.support.gateways.callers import FREE, PRICES, a_caller, a_limit, tokens
from tests.support.gateways.cast import POOL
from tests.support.gateways.reservations import Ask, refusing, settled, used
from tests.support.gateways.service import a_tier


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


async def test_requests_at_once_are_freed_by_their_end(ask: Ask, admission: Admission) -> None:
    caller = a_caller(tier=a_tier(max_concurrent_requests=1))
    await ask("a", caller)
    assert await refusing(ask("b", caller)) == ("tier", "concurrent_requests", 1)
    await admission.settle([*settled("a", FREE), *settled("never", FREE)])
    await ask("b", caller)


async def test_each_sequence_of_a_request_counts_at_once_until_its_end(
    ask: Ask, admission: Admission
) -> None:
    caller = a_caller(tier=a_tier(max_concurrent_requests=8))
    admitted = await ask("a", caller, tokens(50), sequences=5)
    assert await refusing(ask("b", caller, sequences=4)) == ("tier", "concurrent_requests", 8)
    await ask("c", caller, sequences=3)
    await admission.true_down(settled("a", FREE))
    await admission.restore("a", caller, POOL, admitted)
    assert await used(admission, caller) == {
        "tier requests_per_minute": 2,
        "tier concurrent_requests": 8,
    }
    await admission.settle(settled("a", FREE))
    assert (await used(admission, caller))["tier concurrent_requests"] == 3
    await admission.settle(settled("c", FREE))
    assert (await used(admission, caller))["tier concurrent_requests"] == 0


async def test_more_sequences_than_may_run_at_once_are_never_admitted_and_told_so(
    ask: Ask, admission: Admission
) -> None:
    caller = a_caller(tier=a_tier(max_concurrent_requests=4))
    with pytest.raises(LimitReached) as refused:
        await ask("a", caller, sequences=5)
    wire = refused.value.to_wire()
    assert (wire.code, wire.should_retry) == ("request_exceeds_limit", False)
    assert wire.limit is not None
    assert (wire.limit.limit, wire.limit.limit_value) == ("concurrent_requests", 4)
    assert wire.limit.reset_seconds is None
    await ask("a", caller, sequences=4)


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
