"""Whom requests are for: taken where the project names it, dropped everywhere else."""

from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.labels import label_value
from gpu_workers.protocol.messages import Outcome
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_sim_worker
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service
from tests.support.gateways.websocket import ask as asked
from tests.support.gateways.websocket import connected, receive
from tests.support.polling import eventually

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SAID: dict[str, Any] = {
    "user": "alice@acme.example",
    "metadata": {"team": "growth", "secret": "s3cret", "long": "x" * 512, "odd": "a\u0000b"},
}
ASK: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Count."}],
    "max_tokens": 4,
    **SAID,
}
NAMES = ["user", "metadata.team", "metadata.long", "metadata.odd"]
CHOSEN = {
    "user": "alice@acme.example",
    "metadata.team": "growth",
    "metadata.long": label_value("x" * 512),
    "metadata.odd": "a\ufffdb",
}


async def test_what_a_project_names_travels_with_the_request_to_its_record(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    key = await service.snapshot.add_key("Acme", usage_labels=NAMES)
    async with service.client(key) as client:
        assert (await client.post(CHAT, json=ASK)).status_code == 200
    (run,) = worker.runs.values()
    assert run.envelope.labels == CHOSEN
    assert b"s3cret" not in codec.encode(run.envelope)
    # The engine is told nothing of it.
    assert b"alice@acme" not in run.envelope.body and b"growth" not in run.envelope.body
    (record,) = await eventually(worker.records)
    assert record.labels == CHOSEN


async def test_what_no_project_names_is_dropped(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    async with service.client() as client:
        assert (await client.post(CHAT, json=ASK)).status_code == 200
    (run,) = worker.runs.values()
    assert run.envelope.labels == {}
    for said in (b"alice@acme", b"growth", b"s3cret"):
        assert said not in codec.encode(run.envelope)


async def test_websockets_and_plain_completions_say_it_too(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    key = await service.snapshot.add_key("Acme", usage_labels=["user"])
    async with service.client(key) as client:
        body = {"model": MODEL, "prompt": "Count.", "max_tokens": 4, "user": "bob"}
        assert (await client.post(COMPLETIONS, json=body)).status_code == 200
    async with connected(service, key=key) as socket:
        await asked(socket, "a", body={**ASK, "user": "carol"})
        while (await receive(socket))["type"] not in ("done", "error"):
            pass
    assert [run.envelope.labels for run in worker.runs.values()] == [
        {"user": "bob"},
        {"user": "carol"},
    ]


async def test_a_request_that_no_worker_took_is_on_record_with_them(
    impatient_service: Service, worker: ScriptedWorker
) -> None:
    key = await impatient_service.snapshot.add_key("Acme", usage_labels=["user"])
    async with impatient_service.client(key) as client:
        assert (await client.post(CHAT, json=ASK)).status_code == 503
    (record,) = await eventually(worker.records)
    assert (record.outcome, record.labels) == (Outcome.EXPIRED, {"user": "alice@acme.example"})


@pytest.fixture
async def sim_worker(
    service: Service, worker_redis_url: Callable[[str], str]
) -> AsyncIterator[Process]:
    async with a_sim_worker(worker_redis_url(POOL)) as process:
        yield process


@pytest.mark.stack
async def test_a_whole_worker_repeats_them_in_its_record(
    service: Service, sim_worker: Process, dispatch_redis: Redis
) -> None:
    key = await service.snapshot.add_key("Acme", usage_labels=["metadata.team"])
    async with service.client(key) as client:
        assert (await client.post(CHAT, json=ASK)).status_code == 200
    entries: Any = await dispatch_redis.xrange(keys.pool_usage(POOL))
    (record,) = [codec.decode_usage_entry(each[b"record"]) for _, each in entries]
    assert record.labels == {"metadata.team": "growth"}
