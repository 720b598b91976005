"""Terminal frames and records that a gateway makes where no worker does: with what it accepted."""

import time
from typing import Final

from gpu_workers.protocol.messages import Outcome, Terminal, TokenUsage
from gpu_workers.protocol.usage import UsageEntry
from inference.dispatch.queue import usage_entry
from inference.errors import AttemptsExhausted, Cancelled, InferenceError, Unavailable, WorkerLost
from inference.lifecycle.inflight_request import InflightRequest
from inference.streaming.token_stream import TokenStream

_EXPIRED_RETRY_SECONDS: Final = 5


def worker_lost() -> WorkerLost:
    return WorkerLost("The worker that ran this request died; try again.", retry_after_seconds=1)


def attempts_exhausted() -> AttemptsExhausted:
    return AttemptsExhausted("Every worker that took this request died with it.")


def cancelled() -> Cancelled:
    return Cancelled("The request was cancelled.")


def queue_timeout(request: InflightRequest) -> Unavailable:
    waited = time.monotonic() - request.started_at
    return Unavailable(
        f"No worker was free for this request within {waited:.0f} s; try again later.",
        code="queue_timeout",
        retry_after_seconds=_EXPIRED_RETRY_SECONDS,
    )


def terminal_of(request: InflightRequest, outcome: Outcome, error: InferenceError) -> Terminal:
    """Return the terminal frame of a request that this gateway ends."""
    stream = request.stream
    return Terminal(
        request_id=stream.request_id,
        attempt=stream.attempt,
        seq=0,
        outcome=outcome,
        usage=_accepted(stream),
        error=error.to_wire(),
    )


def missed_terminal_of(request: InflightRequest, record: UsageEntry) -> Terminal:
    """Return a terminal frame for a reader that missed the one that the request has had."""
    stream = request.stream
    is_well = record.outcome is Outcome.COMPLETED
    return Terminal(
        request_id=stream.request_id,
        attempt=stream.attempt,
        seq=0,
        outcome=Outcome.FAILED if is_well else record.outcome,
        usage=record.usage,
        error=worker_lost().to_wire(),
    )


def entry_of(
    request: InflightRequest,
    attempt: int,
    outcome: Outcome,
    error: InferenceError,
    *,
    resumed: int = 0,
) -> UsageEntry:
    """Return the usage entry of a request that this gateway ends. `resumed`: tokens that the pool
    has for an attempt to go on from, read here or not."""
    stream = request.stream
    begun_at = stream.first_frame_at
    return usage_entry(
        request.envelope,
        attempt=attempt,
        outcome=outcome,
        error_code=error.to_wire().code,
        worker_id=stream.worker_id,
        usage=_accepted(stream),
        ttft_ms=None if begun_at is None else int((begun_at - request.started_at) * 1000),
        resumed=resumed,
    )


def _accepted(stream: TokenStream) -> TokenUsage:
    return TokenUsage(
        prompt_tokens=stream.prompt_tokens,
        cached_tokens=stream.cached_tokens,
        completion_tokens=stream.completion_tokens,
    )
