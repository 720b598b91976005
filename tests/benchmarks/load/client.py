"""Rounds of load in this process."""

import asyncio
import json
import math
import time
from typing import Any

from tests.benchmarks.load.exchange import Exchange
from tests.benchmarks.load.http_exchange import HttpExchange
from tests.benchmarks.load.rounds import Door, Round, RoundResult, Sample, Target, quantile
from tests.benchmarks.load.websocket_exchange import WebsocketExchange


async def run_round(target: Target, round_: Round) -> RoundResult:
    """Send all requests of a round. Raises `LoadError` if one is not answered in full."""
    bodies = _bodies(target, round_)
    waiting = list(reversed(range(round_.requests)))
    samples: list[Sample] = []
    gaps_ms: list[float] = []
    kind = WebsocketExchange if round_.door is Door.WEBSOCKET else HttpExchange

    async def stream() -> None:
        exchange: Exchange = kind(target, gaps_ms)
        try:
            while waiting:
                body = bodies[waiting.pop() % len(bodies)]
                samples.append(await exchange.ask(round_.door, body))
        finally:
            exchange.close()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(round_.streams):
            group.create_task(stream())
    wall_ms = 1000 * (time.perf_counter() - began)
    gaps = (quantile(gaps_ms, 50), quantile(gaps_ms, 99))
    arrivals = len(gaps_ms) + len(samples)
    return RoundResult(samples=samples, wall_ms=wall_ms, gaps_ms=gaps, arrivals=arrivals)


async def one_stream(target: Target, prompt: str, max_tokens: int) -> Sample:
    """A single chat stream on a connection of its own. Raises `LoadError`."""
    round_ = Round(streams=1, requests=1, max_tokens=max_tokens, prompts=[prompt])
    exchange = HttpExchange(target, [])
    try:
        return await exchange.ask(Door.CHAT, body_of(target.model, round_, prompt))
    finally:
        exchange.close()


def _bodies(target: Target, round_: Round) -> list[bytes]:
    """Return what is asked in turn: each of the prompts and of the models in its own order."""
    models, prompts = [target.model, *target.more_models], round_.prompts
    return [
        body_of(models[number % len(models)], round_, prompts[number % len(prompts)])
        for number in range(math.lcm(len(models), len(prompts)))
    ]


def body_of(model: str, round_: Round, prompt: str) -> bytes:
    body: dict[str, Any] = {
        "model": model,
        "temperature": 0,
        "max_tokens": round_.max_tokens,
        "ignore_eos": True,
    }
    if round_.door is Door.COMPLETIONS:
        body["prompt"] = prompt
    else:
        body["messages"] = [{"role": "user", "content": prompt}]
    if round_.is_streaming:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body).encode()
