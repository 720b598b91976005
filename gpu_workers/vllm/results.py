"""How a request in vLLM ended: as its stream, its answer or what was raised says."""

from typing import Any, Final

from vllm.entrypoints.serve.engine.protocol import ErrorResponse

from gpu_workers.engine import Result
from gpu_workers.protocol.messages import Outcome, WireError
from gpu_workers.vllm.endpoints.endpoint import Endpoint
from gpu_workers.vllm.errors import result_of_error, result_of_response
from gpu_workers.vllm.generation import Generation

_CUT_SHORT: Final = WireError(
    status=502,
    message="The engine ended this request before all of it was generated; ask again.",
    type="server_error",
    code="generation_cut_short",
)


def result_of_stream(generation: Generation) -> Result:
    """Return the result of a stream whose events have all been sent. Raises `EngineDied`."""
    if generation.error is not None:
        return result_of_error(generation.error, generation.usage())
    if not generation.is_whole:
        return _cut_short(generation)
    finish_reason = generation.rendered_finish_reason or generation.finish_reason
    return _completed(generation, finish_reason, None)


async def result_of_answer(endpoint: Endpoint, generation: Generation, answer: Any) -> Result:
    """Return the result of a whole answer, or of vLLM's error in place of one."""
    if isinstance(answer, ErrorResponse):
        if (generation.is_aborted or generation.ended_for) and not generation.is_whole:
            return _cut_short(generation)
        return result_of_response(answer.error, generation.usage())
    if not generation.is_whole:
        generation.logprobs = None  # nobody gets them
    rendered = await endpoint.render_answer(generation, answer)
    generation.reasoning_tokens = rendered.reasoning_tokens
    if not generation.is_whole:
        return _cut_short(generation)
    return _completed(generation, rendered.finish_reason, rendered.body)


def result_of_exception(generation: Generation, error: Exception) -> Result:
    """Return the result of a request whose serving raised. Raises `EngineDied`."""
    if (generation.is_aborted or generation.ended_for) and generation.error is None:
        return _cut_short(generation)
    return result_of_error(generation.error or error, generation.usage())


def _cut_short(generation: Generation) -> Result:
    """Return the result of a request of which a choice has not ended by itself: cancelled, or
    failed where its client did not ask for that. Never complete, however many choices have
    ended."""
    is_cancelled = generation.is_aborted and generation.ended_for is None
    return Result(
        outcome=Outcome.CANCELLED if is_cancelled else Outcome.FAILED,
        usage=generation.usage(),
        error=None if is_cancelled else generation.ended_for or _CUT_SHORT,
        first_token_ns=generation.first_token_ns,
        token_ids=[] if generation.envelope.stream else generation.take_token_ids(),
    )


def _completed(generation: Generation, finish_reason: str | None, body: bytes | None) -> Result:
    return Result(
        outcome=Outcome.COMPLETED,
        usage=generation.usage(),
        finish_reason=finish_reason,
        body=body,
        first_token_ns=generation.first_token_ns,
    )
