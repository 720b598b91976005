"""A worker is drained by an operator: its requests end, others go elsewhere, and it leaves."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from django.db import connections
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Outcome, WorkerState
from gpu_workers.protocol.usage import UsageEntry
from inference.operations import drain
from inference.operations.drain import DrainError, FoundWorker
from inference.redis_functions import LIBRARIES, library_text
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent
from tests.support.commands import refused, run
from tests.support.fleet import write_worker
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_sim_worker
from tests.support.gateways.service import Service

CHAT = "/v1/chat/completions"
STREAM = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Talk."}],
    "stream": True,
    "max_tokens": 80,
    "ignore_eos": True,
    "stream_options": {"include_usage": True},
}
pytestmark = pytest.mark.django_db


@pytest.fixture
def known(redis: SyncRedis, settings: Any, dispatch_redis_url: str) -> Iterator[SyncRedis]:
    """A registry with the worker `gpu-1` of two pools, and `gpu-2` of one."""
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    for library in LIBRARIES:
        redis.function_load(library_text(library), replace=True)
    for pool, name in (("large", "gpu-1"), ("small", "gpu-1"), ("small", "gpu-2")):
        write_worker(redis, pool, worker_id=f"{name}#{pool}", name=name)
    yield redis
    redis.flushall()


def inbox(redis: SyncRedis, pool: str, worker_id: str) -> Any:
    return redis.lrange(keys.pool_inbox(pool, worker_id), 0, -1)


def test_a_worker_is_found_by_its_name_and_told_once(known: SyncRedis) -> None:
    for _ in range(2):
        said = run("drain_worker", "gpu-2")
        assert said == {"worker_id": "gpu-2#small", "pool": "small", "state": "draining"}
    assert inbox(known, "small", "gpu-2#small") == [b"drain\n"]
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.filter(verb="drained")
        assert [event.record_id for event in events] == ["gpu-2#small"] * 2


def test_a_name_that_two_pools_have_needs_its_pool(known: SyncRedis) -> None:
    assert "Several pools have a worker named 'gpu-1': large, small." in refused(
        "drain_worker", "gpu-1"
    )
    run("drain_worker", "gpu-1", "--pool", "large")
    assert inbox(known, "large", "gpu-1#large") == [b"drain\n"]
    assert inbox(known, "small", "gpu-1#small") == []


def test_who_is_not_there_is_not_drained(known: SyncRedis) -> None:
    assert refused("drain_worker", "nobody") == "No worker named 'nobody'."
    assert refused("drain_worker", "gpu-2", "--pool", "large") == (
        "No worker named 'gpu-2' in the pool 'large'."
    )
    known.zadd(keys.pool_heartbeats("small"), {"gpu-2#small": 1})
    assert refused("drain_worker", "gpu-2") == "The worker gpu-2#small is not running."
    assert inbox(known, "small", "gpu-2#small") == [], "nobody would ever read it"


class Pauses:
    """A clock that goes on by each pause, and what happens then."""

    def __init__(self, after: float, then: Callable[[], object]) -> None:
        self.now = 0.0
        self._after = after
        self._then = then

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._after:
            self._then()


def wait(
    redis: SyncRedis, pauses: Pauses, timeout_seconds: float = 60, *, stays: bool = False
) -> None:
    drain.wait_until_drained(
        redis,
        FoundWorker(pool="small", worker_id="gpu-2#small"),
        stays=stays,
        timeout_seconds=timeout_seconds,
        clock=lambda: pauses.now,
        sleep=pauses.sleep,
    )


def test_waiting_ends_when_the_worker_has_left(known: SyncRedis) -> None:
    leaves = Pauses(3, lambda: known.hdel(keys.pool_workers("small"), "gpu-2#small"))
    wait(known, leaves)
    assert leaves.now == 3


def test_a_message_that_was_lost_is_sent_again_while_one_waits(known: SyncRedis) -> None:
    seen: list[Any] = []
    with pytest.raises(DrainError, match="does not drain; stop it on its machine"):
        wait(known, Pauses(0, lambda: seen.append(inbox(known, "small", "gpu-2#small"))), 8)
    assert seen[0] == []
    assert seen[-1] == [b"drain\n"]


def test_waiting_says_where_a_worker_dies_or_takes_too_long(known: SyncRedis) -> None:
    dies = Pauses(2, lambda: known.zadd(keys.pool_heartbeats("small"), {"gpu-2#small": 1}))
    with pytest.raises(DrainError, match="has died"):
        wait(known, dies)
    write_worker(known, "small", worker_id="gpu-2#small", name="gpu-2", state=WorkerState.DRAINING)
    with pytest.raises(DrainError, match="is draining and holds 3 sequences after 10 s"):
        wait(known, Pauses(0, lambda: None), 10)


def test_waiting_for_one_that_stays_ends_when_it_holds_nothing(known: SyncRedis) -> None:
    def says(state: WorkerState) -> None:
        write_worker(known, "small", worker_id="gpu-2#small", name="gpu-2", state=state, stays=True)

    says(WorkerState.DRAINING)
    empties = Pauses(3, lambda: says(WorkerState.DRAINED))
    wait(known, empties, stays=True)
    assert empties.now == 3
    assert inbox(known, "small", "gpu-2#small") == [], "it has read it"
    says(WorkerState.DRAINING)
    leaves = Pauses(3, lambda: known.hdel(keys.pool_workers("small"), "gpu-2#small"))
    with pytest.raises(DrainError, match="has left; somebody else had it leave"):
        wait(known, leaves, stays=True)


def test_one_that_stays_is_resumed_and_that_is_on_record(known: SyncRedis) -> None:
    said = run("drain_worker", "gpu-2", "--stay")
    assert said == {"worker_id": "gpu-2#small", "pool": "small", "state": "draining"}
    assert inbox(known, "small", "gpu-2#small") == [b"drain stay\n"]
    assert "was not drained to stay; there is nothing to resume" in refused(
        "resume_worker", "gpu-2"
    )
    write_worker(
        known,
        "small",
        worker_id="gpu-2#small",
        name="gpu-2",
        state=WorkerState.DRAINED,
        stays=True,
    )
    said = run("resume_worker", "gpu-2")
    assert said == {"worker_id": "gpu-2#small", "pool": "small", "state": "ready"}
    assert inbox(known, "small", "gpu-2#small") == [b"resume\n"]
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.get(verb="resumed")
    assert event.record_id == "gpu-2#small"
    assert refused("resume_worker", "nobody") == "No worker named 'nobody'."


@pytest.mark.stack
@pytest.mark.django_db(transaction=True)
async def test_a_worker_drained_under_load_loses_no_request(
    service: Service,
    worker_redis_url: Callable[[str], str],
    dispatch_redis: Redis,
    dispatch_redis_url: str,
    settings: Any,
) -> None:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    url, begun = worker_redis_url(POOL), asyncio.Semaphore(0)
    async with service.client() as client, a_sim_worker(url, "leaving") as leaving:
        early = [asyncio.create_task(ask(client, begun)) for _ in range(64)]
        for _ in early:
            await begun.acquire()
        async with a_sim_worker(url, "staying"):
            drained = asyncio.create_task(drain_and_wait())
            # Asked all the while that the other one drains, and after it.
            late: list[asyncio.Task[tuple[int, str]]] = []
            while not drained.done() or len(late) < 4:
                late.append(asyncio.create_task(ask(client, begun)))
                await begun.acquire()
            answers = await asyncio.gather(*early, *late)
            async with asyncio.timeout(10):
                assert await leaving.wait() == 0, "as by SIGTERM"
        said = await drained
    assert said["state"] == "gone"
    assert set(answers) == {(80, "data: [DONE]")}
    entries = await records(dispatch_redis)
    assert len(entries) == len(answers)
    assert {(each.outcome, each.attempt) for each in entries} == {(Outcome.COMPLETED, 1)}
    by_worker = [str(each.worker_id).partition("#")[0] for each in entries]
    assert by_worker.count("leaving") >= len(early)
    assert by_worker.count("staying") > 0


async def drain_and_wait() -> Any:
    def command() -> Any:
        try:
            return run("drain_worker", "leaving", "--wait")
        finally:
            connections.close_all()  # this thread's

    return await asyncio.to_thread(command)


async def ask(client: httpx.AsyncClient, begun: asyncio.Semaphore) -> tuple[int, str]:
    """Return how many tokens came, and the last line."""
    tokens, end, is_first = 0, "", True
    async with client.stream("POST", CHAT, json=STREAM, timeout=60) as answer:
        async for line in answer.aiter_lines():
            if is_first:
                begun.release()
                is_first = False
            if line.startswith("data: {") and (usage := json.loads(line[6:]).get("usage")):
                tokens = usage["completion_tokens"]
            end = line or end
    return tokens, end


async def records(redis: Redis) -> list[UsageEntry]:
    entries: Any = await redis.xrange(keys.pool_usage(POOL))
    return [
        codec.decode_usage_entry(fields[b"record"]) for _, fields in entries if b"record" in fields
    ]
