"""vLLM's errors in our terms: what the client can fix is REFUSED, the rest FAILED."""

import re
from dataclasses import replace
from typing import Final

import msgspec
import pydantic
import structlog
from vllm.entrypoints.serve import create_error_response
from vllm.entrypoints.serve.engine.protocol import ErrorInfo
from vllm.exceptions import MaxQueuedTokensError, QueueOverflowError
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from gpu_workers.engine import EngineDied, Result
from gpu_workers.protocol.messages import Api, Outcome, TokenUsage, WireError
from gpu_workers.requests.refusal import PROMPT_PARAM, RequestRefused, invalid_request

_CONTEXT_OVERFLOW: Final = re.compile(
    r"(maximum|max) (context|model|input) length|max_model_len|longer than the maximum|"
    r"input_tokens",
    re.IGNORECASE,
)
_TOO_LONG: Final = "context_length_exceeded"
# What vLLM calls a prompt that it has rendered; no client has sent a field of that name.
_RENDERED: Final = (None, "input_text", "input_tokens")
_REPORTED_ALREADY: Final = re.compile(r" \(parameter=.*\)$", re.DOTALL)

# vLLM repeats what it was given, which may be all of a grammar.
_SHOWN: Final = 1_000

_OVERLOADED: Final = WireError(
    status=503,
    message="The engine holds more requests than it can run soon; ask again.",
    type="server_error",
    code="engine_overloaded",
    retry_after_seconds=1,
)

_log = structlog.get_logger("gpu_workers.vllm.errors")


def result_of_error(error: BaseException, usage: TokenUsage) -> Result:
    """Return the result for a request whose serving raised. Raises `EngineDied` if the engine
    died."""
    if isinstance(error, EngineDeadError):
        raise EngineDied("vLLM's engine process has died", usage) from error
    if isinstance(error, EngineGenerateError) and error.__cause__ is not None:
        return result_of_error(error.__cause__, usage)
    if isinstance(error, QueueOverflowError | MaxQueuedTokensError):
        _log.error("engine_is_over_its_backstop", error=type(error).__name__)
        return Result(outcome=Outcome.FAILED, usage=usage, error=_OVERLOADED)
    if isinstance(error, RequestRefused):
        return Result(outcome=Outcome.REFUSED, usage=usage, error=error.error)
    if isinstance(error, pydantic.ValidationError):
        return _refused(_validation_message(error), _first_location(error), usage)
    return result_of_response(create_error_response(error).error, usage, cause=error)


def result_of_response(
    error: ErrorInfo, usage: TokenUsage, *, cause: BaseException | None = None
) -> Result:
    """Return the result for an error that vLLM's serving objects answered or would answer."""
    if error.code < 500:
        return _refused(_REPORTED_ALREADY.sub("", error.message), error.param, usage)
    # The message is vLLM's own affair: it may name paths, or another's request.
    _log.error("request_failed_in_vllm", error=type(cause).__name__, exc_info=cause)
    return Result(
        outcome=Outcome.FAILED,
        usage=usage,
        error=WireError(
            status=500,
            message="The engine could not serve this request.",
            type="server_error",
            code="internal_error",
        ),
    )


def in_clients_terms(result: Result, api: Api) -> Result:
    """Return the result with the request's own field named where its prompt is too long."""
    error = result.error
    if error is None or error.code != _TOO_LONG or error.param not in _RENDERED:
        return result
    return replace(result, error=msgspec.structs.replace(error, param=PROMPT_PARAM[api]))


def _refused(message: str, param: str | None, usage: TokenUsage) -> Result:
    is_overflow = _CONTEXT_OVERFLOW.search(message) is not None
    return Result(
        outcome=Outcome.REFUSED,
        usage=usage,
        error=invalid_request(
            message if len(message) <= _SHOWN else f"{message[:_SHOWN]}…",
            code=_TOO_LONG if is_overflow else "invalid_request",
            param=param,
        ),
    )


def _validation_message(error: pydantic.ValidationError) -> str:
    """Return where and why, without the input itself, which may be a prompt."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def _first_location(error: pydantic.ValidationError) -> str | None:
    location = error.errors(include_url=False, include_input=False)[0]["loc"]
    return str(location[0]) if location else None
