"""Reservations that a dead gateway left are settled, and those of open requests are not."""

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Outcome, Prices, TokenUsage
from gpu_workers.protocol.policy import LimitName
from inference.admission import reservations
from inference.admission.gate import Admission
from inference.admission.reservations import PoolTarget
from inference.charges import Charge
from inference.dispatch.queue import Dispatch, usage_entry
from tests.support.gateways.callers import PRICES, a_caller, a_limit, tokens
from tests.support.gateways.cast import POOL, an_envelope
from tests.support.gateways.reservations import Ask, Time, settled, used


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


async def test_a_reservation_that_cannot_be_settled_keeps_the_sweeper_from_no_other(
    ask: Ask, dispatch_redis: Redis, time: Time
) -> None:
    caller = a_caller()
    for request_id in ("a", "b", "c"):
        await ask(request_id, caller)
    for request_id in ("a", "c"):
        record = keys.pool_request(POOL, request_id)
        await dispatch_redis.hset(record, "record", b"of another version")
        await dispatch_redis.expire(record, 600)
    assert await reservations.sweep(dispatch_redis, age_ms=-1000, clock=time) == 1
    left = await dispatch_redis.hkeys(keys.tenant_reservations("acme"))
    assert set(left) == {b"a", b"c"}


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
