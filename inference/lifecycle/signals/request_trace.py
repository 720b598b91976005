"""The trace of one request at its gateway, where traces are sent anywhere."""

import time

from gpu_workers.protocol.clock import now_ms
from gpu_workers.protocol.messages import Envelope, Terminal
from gpu_workers.protocol.policy import Caller
from gpu_workers.protocol.tracing import Attributes, Span, Tracer
from inference.admission.callable_models import KnownModel
from inference.errors import InferenceError


class RequestTrace:
    """Begun when the request is, ended once with it. Holds nothing of what it says."""

    __slots__ = ("_begun_at", "_begun_ms", "_is_ended", "_request_id", "_span")

    def __init__(self, tracer: Tracer, request_id: str, traceparent: str) -> None:
        self._begun_ms, self._begun_at = now_ms(), time.monotonic()
        self._request_id = request_id
        self._is_ended = False
        self._span: Span = tracer.begin("request", self._begun_ms, traceparent)

    @property
    def traceparent(self) -> str:
        return self._span.traceparent

    def admitted(self) -> None:
        """Tell the phase before the queue: candidates, limits, reservation."""
        self._span.phase("admission", self._begun_ms, self._now_ms())

    def refused(self, error: Exception, caller: Caller, model: KnownModel | None) -> None:
        """End the trace of a request that was not queued, or may not have been."""
        code = "internal_error"
        if isinstance(error, InferenceError):
            code = error.to_wire().code or error.type
        attributes: Attributes = {
            "penstock.request_id": self._request_id,
            "penstock.model": model.served if model else "",
            "penstock.tier": caller.tier.name,
            "penstock.class": caller.tier.service_class,
            "penstock.tenant_id": caller.tenant_id,
        }
        self._end(attributes, code)

    def ended(self, envelope: Envelope, terminal: Terminal) -> None:
        attributes: Attributes = {
            "penstock.request_id": self._request_id,
            "penstock.model": envelope.model,
            "penstock.pool": envelope.pool,
            "penstock.tier": envelope.tier,
            "penstock.class": envelope.service_class,
            "penstock.tenant_id": envelope.tenant_id,
            "penstock.outcome": terminal.outcome.value,
            "penstock.attempt": terminal.attempt,
            "gen_ai.usage.input_tokens": terminal.usage.prompt_tokens,
            "gen_ai.usage.output_tokens": terminal.usage.completion_tokens,
        }
        error = "" if terminal.error is None else terminal.error.code or terminal.error.type
        self._end(attributes, error)

    def _end(self, attributes: Attributes, error: str) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._span.end(self._now_ms(), attributes, error=error)

    def _now_ms(self) -> float:
        return self._begun_ms + (time.monotonic() - self._begun_at) * 1000
