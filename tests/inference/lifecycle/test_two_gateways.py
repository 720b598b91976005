"""Two gateway processes over one Redis: a limit is one limit, a revocation reaches both."""

import asyncio
import contextlib
import os
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any

import httpx
import pytest
from control_plane.process_limits import raise_open_file_limit
from redis.asyncio import Redis

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.policy import LimitName, PricePolicy
from tests.support.gateways.callers import a_limit
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_gateway, a_sim_worker
from tests.support.gateways.scripted_worker import ScriptedWorker, talk_until_cancelled
from tests.support.gateways.service import Snapshot, a_tier
from tests.support.places import NO_TLS
from tests.support.polling import eventually

pytestmark = pytest.mark.stack

CHAT = "/v1/chat/completions"
OUTPUT_TOKENS = 5
MESSAGES = [{"role": "user", "content": "Count."}]
ASK = {"model": MODEL, "messages": MESSAGES, "max_tokens": OUTPUT_TOKENS}
CREDIT_ROUNDS = int(os.environ.get("CREDIT_ROUNDS", "1"))
at_once = pytest.mark.parametrize(
    "requests",
    [100, pytest.param(1000, marks=pytest.mark.rare)],
    ids=lambda many: f"{many}_at_once",
)


@pytest.fixture
def many_connections(requests: int) -> Iterator[None]:
    """A shell often allows 1,024 open files, which a thousand callers in one process go beyond."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_open_file_limit() > 2 * requests
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
async def gateways(dispatch_redis_url: str, snapshot: Snapshot) -> AsyncIterator[list[str]]:
    await snapshot.add_model(MODEL)
    async with a_gateway(dispatch_redis_url) as one, a_gateway(dispatch_redis_url) as two:
        yield [one, two]


def client_of(url: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=url,
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
        verify=NO_TLS,
        limits=httpx.Limits(max_connections=None),
    )


@pytest.mark.usefixtures("many_connections")
@pytest.mark.parametrize(
    "where",
    [
        pytest.param("tier", marks=pytest.mark.rare),
        pytest.param("limits", marks=pytest.mark.rare),
        "project_limits",
    ],
)
@at_once
async def test_of_many_requests_at_once_exactly_a_tenth_is_admitted(
    gateways: list[str],
    snapshot: Snapshot,
    dispatch_redis: Redis,
    dispatch_redis_url: str,
    where: str,
    requests: int,
) -> None:
    limit = requests // 10
    per_minute = limit if where == "tier" else 10 * requests
    tier = a_tier(requests_per_minute=per_minute, max_concurrent_requests=10 * requests)
    limits: dict[str, Any] = {}
    if where != "tier":
        limits[where] = [a_limit(LimitName.REQUESTS_PER_MINUTE, limit)]
    key = await snapshot.add_key("Acme", tier=tier, **limits)
    async with (
        a_sim_worker(dispatch_redis_url),
        client_of(gateways[0], key) as one,
        client_of(gateways[1], key) as two,
    ):
        began = time.monotonic()
        answers = await asyncio.gather(
            *((one, two)[number % 2].post(CHAT, json=ASK) for number in range(requests))
        )
    assert time.monotonic() - began < 60, "the first of them must not have left the minute"
    assert Counter(answer.status_code for answer in answers) == {200: limit, 429: requests - limit}
    assert await _records(dispatch_redis) == limit

    async def all_are_settled() -> bool:
        return not await dispatch_redis.exists(keys.tenant_open("acme"))

    await eventually(all_are_settled)


@pytest.mark.usefixtures("many_connections")
@pytest.mark.parametrize("paid", [pytest.param(1, marks=pytest.mark.rare), 5])
@at_once
async def test_of_many_requests_at_once_credit_admits_exactly_what_it_pays_for(
    gateways: list[str],
    snapshot: Snapshot,
    dispatch_redis: Redis,
    dispatch_redis_url: str,
    paid: int,
    requests: int,
) -> None:
    """Over two gateways and two keys, CREDIT_ROUNDS times over; `make bench-credit` says fifty."""
    await snapshot.add_model(MODEL, prices=[PricePolicy(completion=2_000_000)])
    tier = a_tier(requests_per_minute=10**6, max_concurrent_requests=10 * requests)
    callers = [await snapshot.add_key("Acme", key_id=name, tier=tier) for name in ("a", "b")]
    worst_nanos = OUTPUT_TOKENS * 2_000
    refusals: Counter[tuple[str, str]] = Counter()
    async with a_sim_worker(dispatch_redis_url):
        for round_ in range(1, CREDIT_ROUNDS + 1):
            credit = round_ * paid * worst_nanos
            await snapshot.put_tenant("Acme", limits=[a_limit(LimitName.BALANCE, credit)])
            async with contextlib.AsyncExitStack() as stack:
                # Anew each time: a gateway may close a connection that was idle for long.
                clients = [
                    await stack.enter_async_context(client_of(gateway, key))
                    for key in callers
                    for gateway in gateways
                ]
                await eventually(partial(_have, clients, credit))
                answers = await asyncio.gather(
                    *(clients[number % 4].post(CHAT, json=ASK) for number in range(requests))
                )
            expected = {200: paid, 429: requests - paid}
            assert Counter(answer.status_code for answer in answers) == expected, round_
            await eventually(partial(_is_spent, dispatch_redis, credit))
            for answer in answers:
                if answer.status_code == 429:
                    error = answer.json()["error"]
                    refusals[error["code"], error["penstock"]["limit"]] += 1
                    assert answer.headers["x-should-retry"] == "false"
    assert refusals == {("insufficient_quota", "balance"): CREDIT_ROUNDS * (requests - paid)}
    assert await _records(dispatch_redis) == CREDIT_ROUNDS * paid


async def _records(redis: Redis) -> int:
    """How many requests are on record; a worker that has nothing to do tells other things too."""
    entries: Any = await redis.xrange(keys.pool_usage(POOL))
    return sum(stream_fields.USAGE_FIELD.encode() in fields for _, fields in entries)


async def _have(clients: Sequence[httpx.AsyncClient], credit: int) -> bool:
    """Whether every gateway knows of so much credit."""
    answers = [(await client.get("/v1/limits")).json()["data"] for client in clients]
    limits = [each for data in answers for each in data if each["limit"] == "balance"]
    return [each["limit_value"] for each in limits] == [credit] * len(clients)


async def _is_spent(redis: Redis, nanos: int) -> bool:
    """All of it, by requests that have ended; never more."""
    settled, reserved = await redis.hmget(keys.tenant_balance("acme"), ["settled", "reserved"])
    assert int(settled or 0) + int(reserved or 0) <= nanos
    return (int(settled or 0), int(reserved or 0)) == (nanos, 0)


async def test_a_revocation_reaches_every_process_within_a_second(
    gateways: list[str], snapshot: Snapshot
) -> None:
    waits = []
    for _ in range(10):
        key = await snapshot.add_key("Acme")
        async with client_of(gateways[0], key) as one, client_of(gateways[1], key) as two:

            async def statuses(*clients: httpx.AsyncClient) -> set[int]:
                return {(await each.get("/v1/models")).status_code for each in clients}

            async def all_are(status: int, *clients: httpx.AsyncClient) -> bool:
                return await statuses(*clients) == {status}

            await eventually(lambda one=one, two=two: all_are(200, one, two))  # type: ignore[misc]
            await snapshot.put_key(key, "Acme", refusal="This API key has been revoked.")
            began = time.monotonic()
            await eventually(lambda one=one, two=two: all_are(401, one, two))  # type: ignore[misc]
            waits.append(time.monotonic() - began)
    assert max(waits) < 1.0, waits


async def test_a_stream_of_each_process_ends_on_revocation(
    gateways: list[str], snapshot: Snapshot, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    key = await snapshot.add_key("Acme")

    async def read(client: httpx.AsyncClient) -> str:
        answer = await client.post(CHAT, json=ASK | {"stream": True})
        return answer.text

    async with client_of(gateways[0], key) as one, client_of(gateways[1], key) as two:
        reading = [asyncio.create_task(read(each)) for each in (one, two)]
        await eventually(lambda: len(worker.runs) == 2)
        await snapshot.put_key(key, "Acme", refusal="This API key has been revoked.")
        began = time.monotonic()
        texts = await asyncio.gather(*reading)
        assert time.monotonic() - began < 5
    assert all("One" in text and "api_key_revoked" in text for text in texts)

    async def are_on_record() -> bool:
        return len(await worker.records()) == 2

    await eventually(are_on_record)
    assert {record.outcome for record in await worker.records()} == {Outcome.CANCELLED}
    assert await dispatch_redis.zcard(keys.pool_open_requests(POOL)) == 0
