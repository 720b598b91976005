"""Traces of requests, as OpenTelemetry has them: one span for a request at its gateway, one for
each attempt at a worker, and in them one for each phase. Never one for a chunk, and none holds what
was said.

Off unless there is somewhere to send them: until then nothing of it is imported here, and
whoever asks for a tracer gets None. Times are Unix milliseconds of the shared clock.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer as OtelTracer

Attributes = Mapping[str, str | int | bool]

# https://www.w3.org/TR/trace-context/#traceparent-header: of version 00, or of a later one, which
# may append fields.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-.*)?",
    re.ASCII,
)
_MOST_CHARACTERS: Final = 256
_EXPORT_SECONDS: Final = 5


def valid_traceparent(text: str) -> str:
    """Return what a client sent if it is well formed, else the empty string: a trace is not worth a
    refusal."""
    if len(text) > _MOST_CHARACTERS:
        return ""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or (found["more"] is not None and text.startswith("00")):
        return ""
    return text[:55]


class Span:
    """A span that has begun. Its phases are children of it, told once they are over."""

    __slots__ = ("_span", "_tracer")

    def __init__(self, tracer: "OtelTracer", span: "OtelSpan") -> None:
        self._tracer = tracer
        self._span = span

    @property
    def traceparent(self) -> str:
        """Return what makes another process's spans children of this one."""
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def phase(self, name: str, begin_ms: float, end_ms: float) -> None:
        """Tell a phase; one that ended before it began took no time."""
        from opentelemetry.trace import set_span_in_context

        span = self._tracer.start_span(
            name, context=set_span_in_context(self._span), start_time=_ns(begin_ms)
        )
        span.end(_ns(max(begin_ms, end_ms)))

    def end(self, end_ms: float, attributes: Attributes, *, error: str = "") -> None:
        """End the span, with what is known of it by now. `error` is the code of what failed."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attributes(dict(attributes))
        if error:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(_ns(end_ms))


class Tracer:
    """Sends the spans of one process, in the background, over OTLP/HTTP."""

    def __init__(self, service: str, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # What else OpenTelemetry's own variables say (sampling, headers, attributes) holds.
        self._provider = TracerProvider(resource=Resource.create({"service.name": service}))
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("penstock")

    def begin(self, name: str, begin_ms: float, traceparent: str = "") -> Span:
        """Begin a span, below the one that a well-formed `traceparent` names."""
        span = self._tracer.start_span(
            name, context=_context_of(traceparent), start_time=_ns(begin_ms)
        )
        return Span(self._tracer, span)

    def close(self) -> None:
        """Send what is left. Blocks for a few seconds at most."""
        self._provider.shutdown()


def open_tracer(service: str, endpoint: str) -> Tracer | None:
    """Return a tracer that sends to `endpoint`, a URL such as http://collector:4318/v1/traces; None
    where that is empty. Raises `SystemExit` where OpenTelemetry is not installed."""
    if not endpoint:
        return None
    try:
        return Tracer(service, endpoint)
    except ImportError as error:
        raise SystemExit(
            "PENSTOCK_TRACES_ENDPOINT is set, and OpenTelemetry is not installed: install "
            f"penstock[otel], or unset it ({error})."
        ) from None


def _context_of(traceparent: str) -> "Context":
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    if not traceparent:
        return Context()
    _, trace_id, span_id, flags = traceparent.split("-")[:4]
    parent = SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16) & TraceFlags.SAMPLED),
    )
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _ns(unix_ms: float) -> int:
    return int(unix_ms * 1_000_000)
