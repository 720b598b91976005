"""What a worker asks of its own engine before anybody else may: nobody's requests, by the way that
everybody's take. They leave no usage, no frame and no tenant's metric. Imports no vLLM."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from gpu_workers.engine import BeginTexts, EmitText, Output, Result
from gpu_workers.protocol.messages import Api, Envelope, Outcome
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.text_event import text_event
from gpu_workers.vllm.parts import Part

NOBODY: Final = "penstock"
# What may differ between two answers to one question: the time, how a text was cut, a call's random
# id, and log probabilities by the last digits.
_TEXT: Final = re.compile(rb'"(content|text|arguments)":"(?:[^"\\]|\\.)*"')
_OTHERS: Final = (
    (re.compile(rb'"created":\d+'), b'"created":0'),
    (re.compile(rb'"tool_calls":\[\{"id":"[^"]*"'), b'"tool_calls":[{"id":"some"'),
    (re.compile(rb"-?\d+(?:\.\d+(?:e-?\d+)?|e-?\d+)(?=[,}\]])"), b"0.0"),
)


class Serving(Protocol):
    """What answers these requests."""

    def generate(
        self,
        envelope: Envelope,
        begin_texts: BeginTexts | None = None,
        *,
        without: frozenset[Part] = ...,
    ) -> AsyncIterator[Output | Result]: ...

    async def abort(self, request_id: str) -> None: ...


@dataclass
class Answer:
    """All that came of a request; `emitted` counts the outputs that came past its queue."""

    request_id: str
    outputs: list[Output] = field(default_factory=list)
    emitted: int = 0
    result: Result | None = None

    @property
    def token_ids(self) -> list[int]:
        return [token_id for output in self.outputs for token_id in output.token_ids]

    @property
    def is_completed(self) -> bool:
        return self.result is not None and self.result.outcome is Outcome.COMPLETED

    @property
    def problem(self) -> str:
        """Return why it did not complete; empty if it did."""
        if self.result is None or self.is_completed:
            return "" if self.is_completed else "no result"
        return self.result.error.code or "failed" if self.result.error else self.result.outcome

    def shape(self) -> tuple[str, list[bytes]]:
        """Return a stream's text and the forms of its events, whoever asked and whenever. How many
        tokens share an event depends on how busy the machine is: forms that repeat count once."""
        text, forms = "", list[bytes]()
        for chunk in (chunk for output in self.outputs for chunk in output.chunks):
            for choice in msgspec.json.decode(chunk)["choices"]:
                text += choice.get("text") or choice.get("delta", {}).get("content") or ""
            form = _TEXT.sub(rb'"\1":"some"', chunk).replace(self.request_id.encode(), b"id")
            for pattern, replacement in _OTHERS:
                form = pattern.sub(replacement, form)
            if not forms or forms[-1] != form:
                forms.append(form)
        return text, forms


def probe_request(
    api: Api,
    body: dict[str, Any],
    *,
    model: str,
    tokens: int,
    stream: bool = True,
    resumed_token_ids: Iterable[int] = (),
) -> Envelope:
    """Return a request for at most so many tokens a choice. Its salt is its own, so that it finds
    nothing in the prefix cache."""
    request_id, now_ms = new_request_id(), time.time_ns() // 1_000_000
    return Envelope(
        request_id=request_id,
        tenant_id=NOBODY,
        project_id=NOBODY,
        api_key_id=NOBODY,
        tier=NOBODY,
        gateway_id=NOBODY,
        pool=NOBODY,
        model=model,
        api=api,
        stream=stream,
        body=json.dumps(body).encode(),
        max_output_tokens=tokens,
        priority=0,
        cache_salt=request_id,
        arrived_at_ms=now_ms,
        ttft_target_ms=60_000,
        max_wait_ms=60_000,
        resumed_token_ids=list(resumed_token_ids),
        is_billed=False,
    )


async def answer_to(
    serving: Serving,
    envelope: Envelope,
    *,
    without: frozenset[Part] = frozenset(),
    seconds: float,
    abort_at: int | None = None,
) -> Answer:
    """Ask and wait for all of the answer, `without` some parts; abort at output number `abort_at`.
    One that takes longer than `seconds` has no result. Raises `EngineDied` if the engine dies."""
    answer = Answer(envelope.request_id)

    def begin_texts(form: tuple[bytes, bytes]) -> EmitText:
        def emit(text: str, completion_tokens: int, token_ids: list[int]) -> None:
            answer.emitted += 1
            answer.outputs.append(
                Output(
                    chunks=[text_event(form, text)],
                    completion_tokens=completion_tokens,
                    token_ids=token_ids,
                )
            )

        return emit

    async def ask() -> None:
        async for item in serving.generate(envelope, begin_texts, without=without):
            if isinstance(item, Result):
                answer.result = item
                continue
            answer.outputs.append(item)
            if len(answer.outputs) == abort_at:
                await serving.abort(envelope.request_id)

    with suppress(TimeoutError):
        await asyncio.wait_for(ask(), seconds)
    return answer
