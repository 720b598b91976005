"""Asking an engine as a worker does, and all that it answers.

Plain functions and asserts: this also runs in the engine's environment, which has no pytest.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from gpu_workers.engine import BeginTexts, EmitText, Engine, EngineDescription, Output, Result
from gpu_workers.protocol.messages import Envelope
from gpu_workers.protocol.text_event import text_event

Clause = Callable[[Engine, EngineDescription], Awaitable[None]]

QUESTION = {"messages": [{"role": "user", "content": "What is a penstock?"}], "temperature": 0}
ENDLESS: dict[str, Any] = QUESTION | {"ignore_eos": True}


@dataclass
class Answer:
    """Everything that `generate` yielded for one request."""

    outputs: list[Output] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    @property
    def result(self) -> Result:
        (result,) = self.results
        return result

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(chunk) for output in self.outputs for chunk in output.chunks]

    @property
    def body(self) -> dict[str, Any]:
        assert self.result.body is not None
        body: dict[str, Any] = json.loads(self.result.body)
        return body

    def text(self, index: int = 0) -> str:
        choices = [choice for event in self.events for choice in event["choices"]]
        return "".join(
            choice["delta"].get("content") or "" if "delta" in choice else choice["text"]
            for choice in choices
            if choice["index"] == index
        )


async def gather(stream: AsyncIterator[Output | Result], answer: Answer | None = None) -> Answer:
    answer = answer or Answer()
    async for item in stream:
        if isinstance(item, Result):
            answer.results.append(item)
        else:
            answer.outputs.append(item)
    return answer


def texts_into(outputs: list[Output]) -> BeginTexts:
    """Texts as the outputs that they stand for."""

    def begin(form: tuple[bytes, bytes]) -> EmitText:
        def emit(text: str, completion_tokens: int, token_ids: list[int]) -> None:
            chunks = [text_event(form, text)]
            outputs.append(
                Output(chunks=chunks, completion_tokens=completion_tokens, token_ids=token_ids)
            )

        return emit

    return begin


async def ask(engine: Engine, envelope: Envelope, timeout_seconds: float = 60.0) -> Answer:
    """As a worker asks: outputs come by both ways, in one order."""
    answer = Answer()
    async with asyncio.timeout(timeout_seconds):
        return await gather(engine.generate(envelope, texts_into(answer.outputs)), answer)
