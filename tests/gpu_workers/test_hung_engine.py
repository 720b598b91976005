"""An engine that lives and makes no step: what it held ends as it does when an engine dies."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from gpu_workers.engine import BeginTexts, Output, Result
from gpu_workers.protocol.messages import Envelope, Outcome, TokenUsage
from gpu_workers.sim.engine import SimEngine
from gpu_workers.sim.faults import SimFaults
from gpu_workers.worker import Exit
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker

ENDLESS: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Go on for ever."}],
    "ignore_eos": True,
}
HANGS = SimFaults(hang_after_steps=3)


class SwallowsCancellations(SimEngine):
    """Takes the end of its task for that of its client, as vLLM's serving objects do."""

    async def generate(
        self, envelope: Envelope, begin_texts: BeginTexts | None = None
    ) -> AsyncIterator[Output | Result]:
        try:
            async for item in super().generate(envelope, begin_texts):
                yield item
        except asyncio.CancelledError:
            yield Result(outcome=Outcome.CANCELLED, usage=TokenUsage())


async def test_what_a_hung_engine_held_ends_typed_or_goes_on_elsewhere(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    hung = SimEngine(step_seconds=0.001, faults=HANGS)
    async with running_worker(sim_redis_url, hung, "one", hung_seconds=1.0) as first:
        await first.ready()
        bodies = {"resumable": True, "bound": False}
        sent = {
            name: await gateway.send(
                make_envelope(ENDLESS, max_output_tokens=8, is_resumable=is_resumable)
            )
            for name, is_resumable in bodies.items()
        }
        terminal = await gateway.terminal_of(sent["bound"])
        assert await first.exit_code() is Exit.ENGINE_HUNG
    assert terminal.outcome is Outcome.FAILED
    assert terminal.error is not None
    assert (terminal.error.status, terminal.error.code) == (502, "engine_failed")
    assert terminal.usage.completion_tokens > 0
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps(granted=100)), "two"):
        assert (await gateway.terminal_of(sent["resumable"])).outcome is Outcome.COMPLETED
    entries = {entry.request_id: entry for entry in await gateway.usage_entries()}
    assert entries[sent["resumable"]].usage.completion_tokens == 8
    assert entries[sent["resumable"]].attempt == 2
    assert entries[sent["bound"]].error_code == "engine_failed"


async def test_who_is_given_up_with_a_hung_engine_did_not_cancel(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    hung = SwallowsCancellations(step_seconds=0.001, faults=HANGS)
    async with running_worker(sim_redis_url, hung, "one", hung_seconds=1.0) as first:
        await first.ready()
        whole = await gateway.send(make_envelope(ENDLESS, max_output_tokens=8, stream=False))
        bound = await gateway.send(make_envelope(ENDLESS, max_output_tokens=8, is_resumable=False))
        terminal = await gateway.terminal_of(bound)
        assert await first.exit_code() is Exit.ENGINE_HUNG
    assert terminal.outcome is Outcome.FAILED
    assert terminal.error is not None
    assert (terminal.error.status, terminal.error.code) == (502, "engine_failed")
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps(granted=100)), "two"):
        assert (await gateway.terminal_of(whole)).outcome is Outcome.COMPLETED
