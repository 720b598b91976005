"""What a gateway asks of pools that are none of its own business: nothing, and of the others no
more than it can afford."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from inference.lifecycle import finisher, inflight_requests, stranded_watch
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service
from tests.support.polling import eventually

QUEUED = {"messages": [{"role": "user", "content": "Count."}]}


@pytest.fixture
async def looked_at(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pools that this gateway looked at, in that order; every one of its models has its own."""
    found: list[str] = []
    dispatch = service.gateway.completions.dispatch
    reap = dispatch.reap

    async def note(pool: str, **options: Any) -> Any:
        found.append(pool)
        return await reap(pool, **options)

    monkeypatch.setattr(dispatch, "reap", note)
    for number in range(4):
        await service.snapshot.add_model(f"org/model-{number}", pool=f"pool-{number}")
    return found


async def ask(service: Service, model: str) -> None:
    async with service.client() as client:
        await client.post("/v1/chat/completions", json={"model": model, **QUEUED})


def has_been_looked_at(looked_at: list[str], pool: str, times: int) -> Callable[[], bool]:
    return lambda: looked_at.count(pool) >= times


async def test_a_pool_in_which_nothing_is_open_any_more_is_looked_at_no_longer(
    service: Service,
    worker: ScriptedWorker,
    looked_at: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await worker.start()
    await ask(service, MODEL)
    await eventually(has_been_looked_at(looked_at, POOL, 1))
    monkeypatch.setattr(inflight_requests, "WATCHED_SECONDS", 0.0)
    waits = asyncio.create_task(ask(service, "org/model-0"))
    await eventually(has_been_looked_at(looked_at, "pool-0", 1))
    looked_at.clear()
    await eventually(has_been_looked_at(looked_at, "pool-0", 2))
    assert set(looked_at) == {"pool-0"}
    waits.cancel()


def test_a_pool_is_watched_for_as_long_as_its_records_are_kept() -> None:
    assert inflight_requests.WATCHED_SECONDS >= finisher.KEPT_SECONDS


async def test_of_many_pools_each_turn_looks_at_those_that_were_not_for_longest(
    service: Service, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stranded_watch, "POOLS_A_TURN", 2)
    monkeypatch.setattr(stranded_watch, "WATCH_SECONDS", 0.05)
    waiting = [asyncio.create_task(ask(service, f"org/model-{number}")) for number in range(4)]
    requests = service.gateway.completions.settlement.requests
    await eventually(lambda: len(requests) == 4)
    looked_at.clear()
    await eventually(lambda: len(looked_at) >= 9)
    # Whatever turn was under way, four pools that follow each other are all of them.
    assert all(len(set(looked_at[first : first + 4])) == 4 for first in range(1, 5))
    for task in waiting:
        task.cancel()
