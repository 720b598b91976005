"""What bad input gets: a 4xx with a sentence, quickly, and the worker never hears of it."""

import asyncio
import json
import statistics
import time
from typing import Any

import httpx
import pytest

from tests.support.gateways.cast import MODEL
from tests.support.gateways.chat_request import CHAT, GOOD, MESSAGES, body
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import MAX_BODY_BYTES, Service

LATENCY_BOUND_SECONDS = 0.05


def message(**changes: Any) -> bytes:
    return body(messages=[{"role": "user", "content": "Hello"} | changes])


BAD_BODIES: dict[str, tuple[bytes, str | None]] = {
    "empty": (b"", None),
    "no JSON": (b"{", None),
    "two values": (body() + b"{}", None),
    "an array": (b"[]", None),
    "invalid UTF-8": (b'{"model": "\xff"}', None),
    "lone surrogate": (
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        None,
    ),
    "deep nesting": (b'{"prediction":' + b"[" * 50_000 + b"]" * 50_000 + b"}", None),
    "NaN": (body(temperature=float("nan")), None),
    "infinity": (body(temperature=float("inf")), None),
    "number out of range": (b'{"model":"m","temperature":1e999}', "temperature"),
    "no model": (json.dumps({"messages": MESSAGES}).encode(), "model"),
    "no messages": (json.dumps({"model": MODEL}).encode(), "messages"),
    "empty messages": (body(messages=[]), "messages"),
    "messages no list": (body(messages="Hello"), "messages"),
    "unknown role": (message(role="wizard"), "messages[0].role"),
    "no content": (body(messages=[{"role": "user"}]), "messages[0].content"),
    "null content": (message(content=None), "messages[0].content"),
    "image": (
        message(content=[{"type": "image_url", "image_url": {"url": "http://169.254.169.254"}}]),
        "messages[0].content[0].type",
    ),
    "unknown message field": (message(weight=1), "messages[0].weight"),
    "unknown field": (body(frobnicate=True), "frobnicate"),
    "temperature as text": (body(temperature="hot"), "temperature"),
    "temperature negative": (body(temperature=-1), "temperature"),
    "temperature absurd": (body(temperature=1e9), "temperature"),
    "top_p zero": (body(top_p=0), "top_p"),
    "n zero": (body(n=0), "n"),
    "n absurd": (body(n=1_000_000), "n"),
    "max_tokens negative": (body(max_tokens=-1), "max_tokens"),
    "max_tokens zero": (body(max_tokens=0), "max_tokens"),
    "max_tokens above the tier": (body(max_tokens=513), "max_tokens"),
    "max_completion_tokens above the tier": (
        body(max_completion_tokens=10**15),
        "max_completion_tokens",
    ),
    "min_tokens above max_tokens": (body(min_tokens=9, max_tokens=3), "min_tokens"),
    "seed too large": (body(seed=2**63), "seed"),
    "stop too long a list": (body(stop=["x"] * 17), "stop"),
    "empty stop": (body(stop=""), "stop"),
    "top_logprobs without logprobs": (body(top_logprobs=3), "top_logprobs"),
    "top_logprobs absurd": (body(logprobs=True, top_logprobs=100), "top_logprobs"),
    "logit_bias no token id": (body(logit_bias={"hello": 1}), "logit_bias"),
    "logit_bias absurd": (body(logit_bias={"1": 1000}), "logit_bias"),
    "stream_options without stream": (body(stream_options={}), "stream_options"),
    "stream no boolean": (body(stream="yes"), "stream"),
    "empty tools": (body(tools=[]), "tools"),
    "tool_choice without tools": (body(tool_choice="auto"), "tool_choice"),
    "unknown tool_choice": (body(tool_choice="maybe"), "tool_choice"),
    "unknown response_format": (body(response_format={"type": "xml"}), "response_format.type"),
    "two structured outputs": (
        body(structured_outputs={"regex": "a", "choice": ["a"]}),
        "structured_outputs",
    ),
    "regex bomb": (body(structured_outputs={"regex": "a" * 5000}), "structured_outputs.regex"),
    "prompt_logprobs": (body(prompt_logprobs=1), "prompt_logprobs"),
    "caller's template": (body(chat_template="{{ x }}"), "chat_template"),
    "template through the back door": (
        body(chat_template_kwargs={"chat_template": "x"}),
        "chat_template_kwargs.chat_template",
    ),
    "caller's priority": (body(priority=-5), "priority"),
    "caller's request id": (body(request_id="mine"), "request_id"),
    "caller's cache salt": (body(cache_salt="mine"), "cache_salt"),
    "audio": (body(audio={"voice": "x", "format": "wav"}), "audio"),
    "audio modality": (body(modalities=["text", "audio"]), "modalities"),
    "web search": (body(web_search_options={}), "web_search_options"),
    "old functions": (body(functions=[{"name": "f"}]), "functions"),
}


async def test_a_bad_body_is_a_400_that_names_the_field(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    wrong: dict[str, str] = {}
    latencies: list[float] = []
    async with service.client() as client:
        await client.get("/v1/models")
        for name, (data, param) in BAD_BODIES.items():
            started_at = time.perf_counter()
            response = await client.post(CHAT, content=data)
            seconds = time.perf_counter() - started_at
            error = response.json()["error"]
            if not (
                response.status_code == 400
                and error["param"] == param
                and error["type"] == "invalid_request_error"
                and len(error["message"]) > 15
                and response.headers["x-request-id"]
            ):
                wrong[name] = f"{response.status_code}: {response.text}"
            latencies.append(seconds)
    assert wrong == {}
    assert statistics.median(latencies) < LATENCY_BOUND_SECONDS
    assert worker.runs == {}


@pytest.mark.parametrize("where", [GOOD, {**GOOD, "messages": [{**MESSAGES[0], "k" * 100_000: 1}]}])
async def test_a_refusal_never_repeats_a_long_body(service: Service, where: Any) -> None:
    async with service.client() as client:
        response = await client.post(CHAT, json={"k" * 100_000: 1, **where})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "unknown_field"
    assert len(response.content) < 1_000


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [""]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": ["a"] * 17}, "prompt"),
        ({"prompt": ["a", "b"], "n": 9}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "logprobs": 1000}, "logprobs"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "prompt_embeds": "AAAA"}, "prompt_embeds"),
    ],
)
async def test_a_bad_completion_is_a_400(
    service: Service, changes: dict[str, Any], param: str
) -> None:
    async with service.client() as client:
        response = await client.post("/v1/completions", json={"model": MODEL} | changes)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


async def test_fields_that_mean_nothing_here_are_taken(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    inert = {
        "user": "alice",
        "store": True,
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "safety_identifier": "x",
        "prompt_cache_key": "x",
        "prompt_cache_retention": "24h",
        "verbosity": "medium",
        "modalities": ["text"],
        "audio": None,
        "tools": None,
        "seed": None,
        "stop": None,
        "temperature": None,
        "stream_options": None,
        "function_call": "none",
        "use_beam_search": False,
    }
    async with service.client() as client:
        response = await client.post(CHAT, content=body(**inert))
    assert response.status_code == 200
    [run] = worker.runs.values()
    assert json.loads(run.envelope.body) == GOOD


async def test_a_conversation_can_be_sent_back_as_it_came(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": [],
            "audio": None,
            "function_call": None,
            "tool_calls": [call],
        },
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ]
    async with service.client() as client:
        response = await client.post(CHAT, content=body(messages=messages))
    assert response.status_code == 200
    [run] = worker.runs.values()
    assert json.loads(run.envelope.body)["messages"] == [
        messages[0],
        messages[1],
        {"role": "assistant", "tool_calls": [call]},
        messages[3],
    ]


async def test_a_prompt_that_fits_no_context_is_refused_here(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start(context_tokens=64, max_token_bytes=4)
    async with service.client() as client:
        fits = await client.post(CHAT, content=message(content="x" * 256))
        too_long = await client.post(CHAT, content=message(content="x" * 257))
    assert fits.status_code == 200
    assert too_long.status_code == 400
    error = too_long.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x" * 257}]}),
        ("/v1/completions", {"prompt": "x" * 257}),
        ("/v1/completions", {"prompt": [1] * 65}),
        ("/v1/completions", {"prompt": [[1], [1] * 65]}),
    ],
)
async def test_a_prompt_that_asks_to_be_truncated_is_not_too_long(
    service: Service, worker: ScriptedWorker, path: str, fields: dict[str, Any]
) -> None:
    await worker.start(context_tokens=64, max_token_bytes=4)
    asked = {"model": MODEL} | fields
    async with service.client() as client:
        too_long = await client.post(path, json=asked)
        truncated = await client.post(path, json=asked | {"truncate_prompt_tokens": -1})
    assert too_long.json()["error"]["code"] == "context_length_exceeded"
    assert truncated.status_code == 200


async def test_an_announced_50_mb_body_is_refused_unread(service: Service) -> None:
    address = httpx.URL(service.url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    started_at = time.perf_counter()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
        b"Authorization: Bearer " + service.alice.encode() + b"\r\n"
        b"Content-Length: 52428800\r\n\r\n"
    )
    status = await reader.readline()
    assert time.perf_counter() - started_at < LATENCY_BOUND_SECONDS
    assert b"413" in status
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_client_that_sends_50_mb_gets_its_answer(
    service: Service, is_chunked: bool
) -> None:
    async def parts() -> Any:
        for _ in range(50):
            yield b" " * 1024 * 1024

    content = parts() if is_chunked else b" " * 50 * 1024 * 1024
    async with service.client() as client:
        response = await client.post(CHAT, content=content)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "body_too_large"
        assert str(MAX_BODY_BYTES) in response.json()["error"]["message"]
        assert (await client.get("/v1/models")).status_code == 200
