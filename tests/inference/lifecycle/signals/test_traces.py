"""One trace for each request, of gateway and worker, where traces are sent; else nothing at all."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from gpu_workers.protocol.tracing import open_tracer, valid_traceparent
from inference.lifecycle.completions import GatewaySettings
from tests.support.gateways.chat_request import CHAT, body
from tests.support.gateways.processes import a_sim_worker
from tests.support.gateways.service import Service, Snapshot, a_service
from tests.support.places import ROOT
from tests.support.polling import eventually
from tests.support.signals.otlp_receiver import OtlpReceiver, otlp_receiver

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
PROMPT = "words-that-no-span-may-hold"
PHASES = {"queue", "prefill", "decode", "finish"}
ALL = {"request", "admission", "attempt", *PHASES}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    # OpenTelemetry's own variable, of how often it sends.
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture
async def traced(
    gateway_settings: GatewaySettings, snapshot: Snapshot, receiver: OtlpReceiver
) -> AsyncIterator[Service]:
    settings = replace(gateway_settings, traces_endpoint=receiver.url)
    async with a_service(settings, snapshot) as service:
        yield service


async def ask(service: Service, *, traceparent: str = "", **changes: object) -> str:
    """Return the request's id."""
    headers = {"traceparent": traceparent} if traceparent else {}
    content = body(messages=[{"role": "user", "content": PROMPT}], max_tokens=30, **changes)
    async with service.client() as client:
        answer = await client.post(CHAT, content=content, headers=headers)
    assert answer.status_code in (200, 404), answer.text
    return answer.headers["x-request-id"]


async def test_a_request_is_one_trace_of_gateway_and_worker(
    traced: Service, receiver: OtlpReceiver, dispatch_redis_url: str
) -> None:
    async with a_sim_worker(dispatch_redis_url, PENSTOCK_TRACES_ENDPOINT=receiver.url):
        streamed = await ask(traced, traceparent=TRACEPARENT, stream=True)
        whole = await ask(traced, traceparent="00-not-a-trace", stream=False)
        await eventually(
            lambda: all(
                len(receiver.of_request(request_id)) == len(ALL) for request_id in (streamed, whole)
            ),
            20,
        )
    for request_id, parent in ((streamed, SPAN_ID), (whole, "")):
        spans = receiver.of_request(request_id)
        by_name = {span.name: span for span in spans}
        # As many as there are phases, however many chunks there were.
        assert len(spans) == len(by_name) and by_name.keys() == ALL
        request, attempt = by_name["request"], by_name["attempt"]
        assert (request.service, attempt.service) == ("penstock-gateway", "penstock-worker")
        assert (request.parent_id, attempt.parent_id) == (parent, request.span_id)
        assert by_name["admission"].parent_id == request.span_id
        assert all(by_name[phase].parent_id == attempt.span_id for phase in PHASES)
        assert all(span.begin_ns <= span.end_ns for span in spans)
        order = [by_name[phase] for phase in ("queue", "prefill", "decode", "finish")]
        assert all(one.end_ns == after.begin_ns for one, after in pairwise(order))
        for span in (request, attempt):
            assert span.attributes["penstock.request_id"] == request_id
            assert span.attributes["penstock.outcome"] == "completed"
            assert span.attributes["gen_ai.usage.output_tokens"] > 0
    assert receiver.of_request(streamed)[0].trace_id == TRACE_ID
    assert receiver.of_request(whole)[0].trace_id != TRACE_ID
    assert not any(PROMPT.encode() in sent for sent in receiver.bodies)
    assert not any(traced.alice.encode() in sent for sent in receiver.bodies)


async def test_a_refusal_is_a_trace_of_its_own(traced: Service, receiver: OtlpReceiver) -> None:
    request_id = await ask(traced, model=PROMPT)
    await eventually(lambda: receiver.of_request(request_id), 10)
    (span,) = receiver.of_request(request_id)
    assert span.attributes["error.type"] == "model_not_found"
    assert not any(PROMPT.encode() in sent for sent in receiver.bodies)


async def test_whoever_does_not_want_to_be_traced_is_not(
    traced: Service, receiver: OtlpReceiver
) -> None:
    unsampled = await ask(traced, model="nobodys", traceparent=f"00-{TRACE_ID}-{SPAN_ID}-00")
    last = await ask(traced, model="nobodys")
    await eventually(lambda: receiver.of_request(last), 10)
    assert receiver.of_request(unsampled) == []


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (TRACEPARENT, TRACEPARENT),
        (f"01-{TRACE_ID}-{SPAN_ID}-01-of-a-later-version", f"01-{TRACE_ID}-{SPAN_ID}-01"),
        (f"00-{TRACE_ID}-{SPAN_ID}-01-too-much", ""),
        (f"ff-{TRACE_ID}-{SPAN_ID}-01", ""),
        (f"00-{'0' * 32}-{SPAN_ID}-01", ""),
        (f"00-{TRACE_ID}-{'0' * 16}-01", ""),
        (f"00-{TRACE_ID.upper()}-{SPAN_ID}-01", ""),
        (f"{TRACEPARENT}\n", ""),
        ("01-" + "a" * 10_000, ""),
        ("", ""),
    ],
)
def test_a_malformed_traceparent_is_ignored(given: str, taken: str) -> None:
    assert valid_traceparent(given) == taken


def test_nothing_that_traces_is_even_imported_where_nothing_is_traced() -> None:
    assert open_tracer("penstock-gateway", "") is None
    program = (
        "import sys, control_plane.gateway, gpu_workers.__main__, gpu_workers.sim.engine;"
        "from gpu_workers.protocol.tracing import open_tracer; open_tracer('x', '');"
        # redis-py imports OpenTelemetry's metrics by itself, wherever they are installed.
        "print([name for name in sys.modules"
        " if name.startswith(('opentelemetry.sdk.trace', 'opentelemetry.exporter'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
