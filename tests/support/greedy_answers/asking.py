"""Asking a server over HTTP, many at once, as its clients do."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tests.support.greedy_answers.compared import Answer
from tests.support.greedy_answers.questions import Asked
from tests.support.places import NO_TLS

_TIMEOUT_SECONDS: Final = 300.0
# What a request asks for to get the ids and log-probabilities of its tokens.
DETAILED: Final = {"logprobs": True, "top_logprobs": 5, "return_tokens_as_token_ids": True}
_TOKEN_ID: Final = "token_id:"


@dataclass(frozen=True, kw_only=True)
class Server:
    """What its clients know of it: by adapter the name that they ask for, and their key."""

    url: str
    models: Mapping[str, str]
    keys: Mapping[str, str]


async def ask_all(
    server: Server, asked: Sequence[Asked], *, max_tokens: int, at_once: int, streams: bool
) -> list[Answer]:
    """Ask all, so many at once, in their order. Streams are plain; answers that come whole have
    the ids and log-probabilities of their tokens."""
    turns = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(
        base_url=server.url, timeout=_TIMEOUT_SECONDS, verify=NO_TLS, limits=limits
    ) as http:

        async def one(each: Asked) -> Answer:
            headers = {"Authorization": f"Bearer {server.keys[each.adapter]}"}
            body = {
                "model": server.models[each.adapter],
                "messages": each.messages,
                "temperature": 0,
                "max_tokens": max_tokens,
            }
            async with turns:
                if streams:
                    return await _streamed(http, body, headers)
                return await _whole(http, body, headers)

        return await asyncio.gather(*map(one, asked))


def likeliest_of(token: Mapping[str, Any]) -> dict[int, float]:
    """Return the log-probabilities of a token and of those that were likeliest in its place, by
    their ids, as answers with DETAILED have them."""
    return {_id_of(each): each["logprob"] for each in [*token["top_logprobs"], token]}


async def _whole(http: httpx.AsyncClient, body: dict[str, Any], headers: Any) -> Answer:
    answer = await http.post("/v1/chat/completions", json=body | DETAILED, headers=headers)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["model"] == body["model"]
    (choice,) = told["choices"]
    tokens = choice["logprobs"]["content"]
    return Answer(
        text=choice["message"]["content"],
        finish_reason=choice["finish_reason"],
        prompt_tokens=told["usage"]["prompt_tokens"],
        completion_tokens=told["usage"]["completion_tokens"],
        token_ids=[_id_of(token) for token in tokens],
        likeliest=[likeliest_of(token) for token in tokens],
    )


async def _streamed(http: httpx.AsyncClient, body: dict[str, Any], headers: Any) -> Answer:
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    text, finish_reason = "", ""
    usage: dict[str, int] = {}
    async with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
                finish_reason = choice["finish_reason"] or finish_reason
    return Answer(
        text=text,
        finish_reason=finish_reason,
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
    )


def _id_of(token: Mapping[str, Any]) -> int:
    return int(token["token"].removeprefix(_TOKEN_ID))
