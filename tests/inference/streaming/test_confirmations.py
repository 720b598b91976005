"""Workers are told what has come, and never of a batch that may be missing."""

from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Confirmation, FrameBatch
from inference.streaming import confirmations
from inference.streaming.confirmations import Confirmations
from tests.support.gateways.cast import POOL

WORKER_ID = "w#1"


@pytest.fixture
def told(dispatch_redis: Redis) -> Confirmations:
    return Confirmations(dispatch_redis, "gateway-1")


def come(told: Confirmations, *numbers: int, worker_id: str = WORKER_ID) -> None:
    for number in numbers:
        told.note(POOL, FrameBatch(worker_id=worker_id, frames=[], number=number))


async def heard(redis: Redis, told: Confirmations, worker_id: str = WORKER_ID) -> list[int]:
    """What the worker is told at the next occasion."""
    await told.confirm()
    inbox = keys.pool_inbox(POOL, worker_id)
    messages: Any = await redis.lpop(inbox, 100) or []
    found = [codec.decode_inbox(each) for each in messages]
    assert all(isinstance(each, Confirmation) for each in found)
    return [each.number for each in found if isinstance(each, Confirmation)]


async def test_the_last_batch_is_confirmed_for_all_before_it(
    told: Confirmations, dispatch_redis: Redis
) -> None:
    come(told, 7, 8, 9)
    come(told, 1, worker_id="v#1")
    assert await heard(dispatch_redis, told) == [9]
    assert await heard(dispatch_redis, told, "v#1") == [1]
    assert await heard(dispatch_redis, told) == [], "told once"
    come(told, 10)
    assert await heard(dispatch_redis, told) == [10]


async def test_nothing_is_confirmed_for_a_while_where_a_batch_is_missing(
    told: Confirmations, dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    come(told, 1)
    assert await heard(dispatch_redis, told) == [1]
    come(told, 3)
    assert await heard(dispatch_redis, told) == []
    come(told, 4)
    assert await heard(dispatch_redis, told) == []
    monkeypatch.setattr(confirmations, "LOSS_SECONDS", 0)
    come(told, 6)
    assert await heard(dispatch_redis, told) == [6], "by now its streams have asked for it"


async def test_what_a_dead_worker_is_told_does_not_stay(
    told: Confirmations, dispatch_redis: Redis
) -> None:
    come(told, 1)
    await told.confirm()
    assert 0 < await dispatch_redis.ttl(keys.pool_inbox(POOL, WORKER_ID)) <= 60


async def test_a_worker_of_which_nothing_comes_is_forgotten(
    told: Confirmations, dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    come(told, 1)
    assert await heard(dispatch_redis, told) == [1]
    monkeypatch.setattr(confirmations, "FORGET_SECONDS", -1)
    assert await heard(dispatch_redis, told) == []
    come(told, 90)
    assert await heard(dispatch_redis, told) == [90], "the first that is known of it"
