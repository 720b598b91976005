"""What a worker logs while it serves a request says of which, and nothing that it holds."""

from collections.abc import AsyncIterator
from typing import Any

import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from gpu_workers.engine import Output, Result
from gpu_workers.protocol.messages import Envelope, Outcome
from gpu_workers.sim.engine import SimEngine
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker

PROMPT = "the-words-of-a-client"


class FailingEngine(SimEngine):
    """Logs and raises where a request is to be generated."""

    async def generate(
        self, envelope: Envelope, begin_texts: Any = None
    ) -> AsyncIterator[Output | Result]:
        structlog.get_logger("engine").warning("on_the_way")
        raise RuntimeError("unforeseen")
        yield


async def test_lines_bear_the_request_and_its_attempt(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    with capture_logs(processors=[merge_contextvars]) as lines:
        async with running_worker(sim_redis_url, FailingEngine(sleep=Steps(granted=5))) as running:
            await running.ready()
            sent = []
            for _ in range(2):
                envelope = make_envelope({"messages": [{"role": "user", "content": PROMPT}]})
                sent.append(await gateway.send(envelope))
                terminal = await gateway.terminal_of(sent[-1])
                assert terminal.outcome is Outcome.FAILED
    for event in ("on_the_way", "engine_raised"):
        of_event = [line for line in lines if line["event"] == event]
        assert [(line["request_id"], line["attempt"]) for line in of_event] == [
            (request_id, 1) for request_id in sent
        ]
    assert PROMPT not in str(lines)
