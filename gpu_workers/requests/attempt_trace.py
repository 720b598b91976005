"""The span of one attempt at a worker and its phases, told once it is over."""

import time

from gpu_workers.engine import Result
from gpu_workers.protocol.tracing import Attributes, Tracer, valid_traceparent
from gpu_workers.requests.open_request import OpenRequest


def trace_attempt(tracer: Tracer, request: OpenRequest, result: Result, generated_ns: int) -> None:
    """Send the spans of an attempt whose end is on record, or that is back in the queue, just now:
    `generated_ns`, by `time.monotonic_ns`, is when the engine was done with it. One whose gateway
    traces nothing has none."""
    envelope = request.envelope
    parent = valid_traceparent(envelope.traceparent)
    if not parent:
        return

    def unix_ms(monotonic_ns: int) -> float:
        return request.received_at_ms + (monotonic_ns - request.received_ns) / 1e6

    received_ms, ended_ms = float(request.received_at_ms), unix_ms(time.monotonic_ns())
    generated_ms = unix_ms(generated_ns)
    span = tracer.begin("attempt", min(envelope.arrived_at_ms, received_ms), parent)
    span.phase("queue", envelope.arrived_at_ms, received_ms)
    if request.first_token_ns is None:
        span.phase("prefill", received_ms, generated_ms)
    else:
        first_ms = unix_ms(request.first_token_ns)
        span.phase("prefill", received_ms, first_ms)
        span.phase("decode", first_ms, generated_ms)
    span.phase("finish", generated_ms, ended_ms)
    attributes: Attributes = {
        "penstock.request_id": envelope.request_id,
        "penstock.attempt": request.attempt,
        "penstock.model": envelope.model,
        "penstock.pool": envelope.pool,
        "penstock.outcome": result.outcome.value,
        "penstock.adapter": bool(envelope.adapter),
        "gen_ai.usage.input_tokens": result.usage.prompt_tokens,
        "gen_ai.usage.cached_tokens": result.usage.cached_tokens,
        "gen_ai.usage.output_tokens": result.usage.completion_tokens,
    }
    error = "" if result.error is None else result.error.code or result.error.type
    span.end(ended_ms, attributes, error=error)
