"""What a client may ask for field by field is bounded as a whole too, at every door."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from inference.lifecycle.answer_bound import MOST_LOGPROBS, MOST_TOKENS
from tests.support.gateways.cast import MODEL
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service, a_tier
from tests.support.gateways.websocket import ask, connected, receive

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}
CONTINUE: dict[str, Any] = {"model": MODEL, "prompt": "One"}
TWO_PROMPTS: dict[str, Any] = {"model": MODEL, "prompt": ["One", "Two"]}
CONTEXT, MOST = 200_000, 150_000

# The one that lost a worker, and the largest that is taken of each kind beside the next one.
ALL_ALTERNATIVES = {"logprobs": True, "top_logprobs": 20}
TOO_LARGE = [
    (CHAT, ASK | ALL_ALTERNATIVES | {"n": 16, "max_tokens": 1900}, "max_tokens", 195),
    (CHAT, ASK | ALL_ALTERNATIVES | {"max_completion_tokens": 3121}, "max_completion_tokens", 3120),
    (CHAT, ASK | {"logprobs": True, "n": 16, "max_tokens": 4097}, "max_tokens", 4096),
    (CHAT, ASK | {"n": 16, "max_tokens": 65_537}, "max_tokens", 65_536),
    (COMPLETIONS, CONTINUE | {"logprobs": 20, "n": 16, "max_tokens": 196}, "max_tokens", 195),
    (COMPLETIONS, TWO_PROMPTS | {"logprobs": 20, "n": 8, "max_tokens": 196}, "max_tokens", 195),
    (COMPLETIONS, CONTINUE | {"logprobs": 0, "max_tokens": 65_537}, "max_tokens", 65_536),
    (COMPLETIONS, TWO_PROMPTS | {"n": 8, "max_tokens": 65_537}, "max_tokens", 65_536),
]


@pytest.fixture
async def roomy(service: Service, worker: ScriptedWorker) -> AsyncIterator[Service]:
    """A tier and a worker that bound no output by themselves."""
    tier = a_tier(default_max_output_tokens=5_000, max_output_tokens=MOST)
    key = await service.snapshot.add_key("Acme", tier=tier)
    await service.snapshot.add_model(MODEL, context_tokens=CONTEXT)
    await worker.start(context_tokens=CONTEXT)
    yield replace(service, alice=key)


def taken(body: dict[str, Any], param: str, most: int) -> dict[str, Any]:
    return body | {param: most}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "param", "most"), TOO_LARGE)
async def test_an_answer_that_may_become_too_large_is_refused_and_reserves_nothing(
    roomy: Service,
    dispatch_redis: Redis,
    worker: ScriptedWorker,
    path: str,
    body: dict[str, Any],
    param: str,
    most: int,
    stream: bool,
) -> None:
    async with roomy.client() as client:
        answer = await client.post(path, json=body | {"stream": stream})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("answer_too_large", param)
    bound = MOST_LOGPROBS if "logprobs" in body else MOST_TOKENS
    for figure in (body[param], bound, most):
        assert str(figure) in error["message"]
    assert worker.runs == {}
    assert not [key async for key in dispatch_redis.scan_iter(f"{keys.tenant_prefix('acme')}*")]


@pytest.mark.parametrize(("path", "body", "param", "most"), TOO_LARGE)
async def test_the_largest_answer_is_taken(
    roomy: Service,
    worker: ScriptedWorker,
    path: str,
    body: dict[str, Any],
    param: str,
    most: int,
) -> None:
    async with roomy.client() as client:
        answer = await client.post(path, json=taken(body, param, most))
    assert answer.status_code == 200, answer.text
    [run] = worker.runs.values()
    assert run.envelope.max_output_tokens == most


async def test_a_websocket_is_refused_in_the_same_way_and_lives(
    roomy: Service, worker: ScriptedWorker
) -> None:
    async with connected(roomy, key=roomy.alice) as socket:
        for api, (path, body, param, _) in zip(
            ("chat.completions", "completions"), (TOO_LARGE[0], TOO_LARGE[4]), strict=True
        ):
            await ask(socket, path, api=api, body=body)
            refused = await receive(socket)
            assert (refused["type"], refused["id"]) == ("error", path)
            error = refused["error"]
            assert (error["code"], error["param"]) == ("answer_too_large", param)
        await ask(socket, "plain")
        assert (await receive(socket))["type"] == "chunk"


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({}, 5_000),
        ({"logprobs": True}, 5_000),
        (ALL_ALTERNATIVES, 3_120),
        (ALL_ALTERNATIVES | {"n": 16}, 195),
        ({"n": 16}, 5_000),
    ],
)
async def test_where_the_client_names_no_bound_the_tiers_is_lowered(
    roomy: Service, worker: ScriptedWorker, fields: dict[str, Any], bound: int
) -> None:
    async with roomy.client() as client:
        answer = await client.post(CHAT, json=ASK | fields)
    assert answer.status_code == 200
    [run] = worker.runs.values()
    assert run.envelope.max_output_tokens == bound
    assert run.envelope.output_bound == bound * fields.get("n", 1)


async def test_more_than_the_context_holds_counts_as_what_it_holds(
    roomy: Service, worker: ScriptedWorker
) -> None:
    """A client may name a bound that it never reaches."""
    await roomy.snapshot.add_model(MODEL, context_tokens=2048)
    await worker.stop()
    await worker.start(context_tokens=2048)
    async with roomy.client() as client:
        one = await client.post(CHAT, json=ASK | ALL_ALTERNATIVES | {"max_tokens": 100_000})
        several = await client.post(
            CHAT, json=ASK | ALL_ALTERNATIVES | {"max_tokens": 100_000, "n": 2}
        )
    assert one.status_code == 200, one.text
    assert several.status_code == 400
    assert several.json()["error"]["code"] == "answer_too_large"


async def test_an_echo_alone_is_reserved_the_token_that_engines_generate_for_it(
    roomy: Service, worker: ScriptedWorker
) -> None:
    async with roomy.client() as client:
        answer = await client.post(COMPLETIONS, json=CONTINUE | {"echo": True, "max_tokens": 0})
    assert answer.status_code == 200
    [run] = worker.runs.values()
    assert run.envelope.max_output_tokens == run.envelope.output_bound == 1


@pytest.mark.parametrize(
    ("path", "fields", "is_taken"),
    [
        (CHAT, {"stream_interval": 97} | ALL_ALTERNATIVES, True),
        (CHAT, {"stream_interval": 98} | ALL_ALTERNATIVES, False),
        (CHAT, {"stream_interval": 1024, "logprobs": True}, True),
        (CHAT, {"stream_interval": 1024}, True),
        (COMPLETIONS, {"stream_interval": 1024, "logprobs": 1}, True),
        (COMPLETIONS, {"stream_interval": 1024, "logprobs": 2}, False),
    ],
)
async def test_one_event_of_a_stream_is_bounded_too(
    roomy: Service, path: str, fields: dict[str, Any], is_taken: bool
) -> None:
    body = (ASK if path == CHAT else CONTINUE) | fields | {"stream": True, "max_tokens": 100}
    async with roomy.client() as client:
        answer: httpx.Response = await client.post(path, json=body)
    assert answer.status_code == (200 if is_taken else 400)
    if not is_taken:
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("answer_too_large", "stream_interval")
