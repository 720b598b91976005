"""Probes what we rely on inside vLLM, by its behaviour, before anybody is served.

vLLM promises none of this: a version may rename it, or go by another way. Each probe asks the
engine something by the very path of a request and looks at what comes of it. What differs from what
we rely on is served without from then on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol

import structlog

from gpu_workers.engine import EngineDied, EngineLoad
from gpu_workers.protocol.messages import Api, Envelope, Outcome
from gpu_workers.vllm.adapters.loaded import LoadedAdapters
from gpu_workers.vllm.adapters.probe import keeps_apart
from gpu_workers.vllm.endpoints.registry import ENDPOINTS, PLAINEST
from gpu_workers.vllm.parts import Part
from gpu_workers.vllm.probe_requests import Answer, Serving, answer_to, probe_request

# A probe may be the first to compile something; what takes longer than this does not come back.
PROBE_SECONDS: Final = 300.0
STATS_SECONDS: Final = 5.0
# Where two kernels tie, two answers may differ once; a path that is another one always does.
TRIES: Final = 3
STREAMED_TOKENS: Final = 16
RESUMED_TOKENS: Final = 4
ABORTED_TOKENS: Final = 512

PROMPT: Final = ENDPOINTS[PLAINEST].question
# The last event may carry the usage, and a stop string ends a text before its token.
_STREAMS: Final[tuple[dict[str, Any], ...]] = (
    {"ignore_eos": True},
    {"stream_options": {"include_usage": True}, "stop": ["e"]},
)
_ALL: Final = frozenset(Part)

_log = structlog.get_logger("gpu_workers.vllm.probes")


class Probed(Serving, Protocol):
    """The serving under probe."""

    model: str
    adapters: LoadedAdapters | None

    def load_now(self) -> EngineLoad: ...

    def missing(self) -> frozenset[Part]:
        """Return the parts that this vLLM has not even by name."""
        ...

    def serve_without(self, parts: frozenset[Part]) -> None:
        """Rely on these parts no more."""
        ...

    def close_queue(self) -> Callable[[], None]:
        """Have vLLM take no request by its own limits; return what opens it again."""
        ...


async def probe(serving: Probed) -> frozenset[Part]:
    """Probe every part; have `serving` do without those that differ, and return them. Raises
    `EngineDied` if the engine dies of it."""
    probes: tuple[Callable[[Probed], Awaitable[Part | None]], ...] = (
        _probe_resumption,
        _probe_abort,
        _probe_queue_limits,
        _probe_stats,
        _probe_adapters,
    )
    differing = serving.missing()
    serving.serve_without(differing)
    differing |= await _probe_streams(serving)
    serving.serve_without(differing)
    for each in probes:
        part = await each(serving)
        if part is not None:
            differing |= {part}
            serving.serve_without(differing)
    for part in sorted(differing):
        _log.error("vllm_differs", part=part.value)
    return differing


async def _probe_streams(serving: Probed) -> frozenset[Part]:
    """Compare what the short paths stream with what vLLM itself does; return what differed each
    time."""
    differing = _ALL
    for _ in range(TRIES):
        found = [
            await _compare(serving, api, fields, is_plain=is_plain)
            for api, endpoint in ENDPOINTS.items()
            if endpoint.fast_path is not None
            for streams, is_plain in ((_STREAMS, True), (endpoint.streams, False))
            for fields in streams
        ]
        differing &= frozenset(part for part in found if part is not None)
        if not differing:
            break
    return differing


async def _compare(
    serving: Probed, api: Api, fields: dict[str, Any], *, is_plain: bool
) -> Part | None:
    """Return what a stream differs by, if anything; only a plain one can be diverted."""
    without = [_ALL, frozenset({Part.OUTPUT_DIVERSION})]
    if is_plain:
        without.append(frozenset())
    endpoint = ENDPOINTS[api]
    own, rendered, *diverted = await asyncio.gather(
        *(_stream(serving, api, endpoint.question | fields, without=each) for each in without)
    )
    if not own.is_completed:
        return None  # a model without a template, or tools: it is refused, whatever the path
    if not rendered.is_completed or rendered.shape() != own.shape():
        return endpoint.fast_path_part
    for each in diverted:
        is_long = len(own.token_ids) >= STREAMED_TOKENS
        is_same = each.is_completed and each.shape() == own.shape()
        if not is_same or (is_long and not each.emitted):
            return Part.OUTPUT_DIVERSION
    return None


async def _probe_resumption(serving: Probed) -> Part | None:
    """Resume from tokens that the engine would not have generated itself: they come first, and
    alone, and count."""
    body = PROMPT | {"ignore_eos": True}
    before = await _ask(serving, _plain(serving, body, RESUMED_TOKENS))
    token_ids = before.token_ids[::-1]
    wanted = 2 * RESUMED_TOKENS
    resumed = await _ask(serving, _plain(serving, body, wanted, resumed_token_ids=token_ids))
    is_same = (
        resumed.is_completed
        and len(token_ids) == RESUMED_TOKENS
        and resumed.outputs[0].token_ids == token_ids
        and len(resumed.token_ids) == wanted == _completion_tokens(resumed)
    )
    return None if is_same else Part.RESUMPTION


async def _probe_abort(serving: Probed) -> Part | None:
    """Abort at the first token: the end comes, is a cancellation, and counts what there was."""
    endless = _plain(serving, PROMPT | {"ignore_eos": True}, ABORTED_TOKENS)
    answer = await _ask(serving, endless, abort_at=1)
    is_aborted = (
        answer.result is not None
        and answer.result.outcome is Outcome.CANCELLED
        and 0 < _completion_tokens(answer) < ABORTED_TOKENS
    )
    return None if is_aborted else Part.ABORT


async def _probe_queue_limits(serving: Probed) -> Part | None:
    """With no room in its queue vLLM refuses, by the error that we take for overload."""
    reopen = serving.close_queue()
    try:
        answer = await _ask(serving, _plain(serving, PROMPT, 1))
    finally:
        reopen()
    return None if answer.problem == "engine_overloaded" else Part.QUEUE_LIMITS


async def _probe_stats(serving: Probed) -> Part | None:
    """The engine's own count grows by what it generated, and its steps are reported."""
    before = serving.load_now()
    answer = await _ask(serving, _plain(serving, PROMPT, RESUMED_TOKENS))
    generated = _completion_tokens(answer)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STATS_SECONDS
    while loop.time() < deadline:
        load = serving.load_now()
        if load.steps > before.steps and (
            load.generated_tokens == before.generated_tokens + generated
        ):
            return None
        await asyncio.sleep(0.01)
    return Part.STEP_STATS


async def _probe_adapters(serving: Probed) -> Part | None:
    """Nobody gets an adapter that he has not named."""
    adapters = serving.adapters
    return None if adapters is None or await keeps_apart(serving, adapters) else Part.ADAPTERS


def _plain(
    serving: Probed,
    body: dict[str, Any],
    tokens: int,
    *,
    resumed_token_ids: Iterable[int] = (),
) -> Envelope:
    return probe_request(
        PLAINEST,
        body,
        model=serving.model,
        tokens=tokens,
        resumed_token_ids=resumed_token_ids,
    )


async def _stream(
    serving: Probed, api: Api, body: dict[str, Any], *, without: frozenset[Part]
) -> Answer:
    envelope = probe_request(api, body, model=serving.model, tokens=STREAMED_TOKENS)
    return await _ask(serving, envelope, without=without)


async def _ask(
    serving: Probed,
    envelope: Envelope,
    *,
    without: frozenset[Part] = frozenset(),
    abort_at: int | None = None,
) -> Answer:
    """Ask; an exception is an answer without a result, as another path would not have raised it."""
    try:
        return await answer_to(
            serving, envelope, without=without, seconds=PROBE_SECONDS, abort_at=abort_at
        )
    except EngineDied:
        raise
    except Exception:  # noqa: BLE001 - whatever it is, it is what differs
        _log.exception("probe_raised", request_id=envelope.request_id)
        return Answer(envelope.request_id)


def _completion_tokens(answer: Answer) -> int:
    return answer.result.usage.completion_tokens if answer.result is not None else 0
