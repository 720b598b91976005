"""The batch of the simulated engine, which a test steps."""

import asyncio

from gpu_workers.protocol.messages import Envelope, Outcome
from gpu_workers.sim.engine import SimEngine
from tests.support.polling import eventually
from tests.support.workers.asking import ENDLESS, ask
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.running_worker import Steps


def wide(sequences: int, *, priority: int = 0, tokens: int = 3) -> Envelope:
    fields = {"n": sequences, "temperature": 1}
    return make_envelope(
        ENDLESS | fields, stream=False, max_output_tokens=tokens, priority=priority
    )


async def test_a_batch_has_as_many_sequences_as_slots_and_the_others_wait() -> None:
    steps = Steps()
    engine = SimEngine(slots=4, sleep=steps)
    await engine.start()
    try:
        first = asyncio.create_task(ask(engine, wide(3)))
        await eventually(lambda: engine.load().running == 3)
        second = asyncio.create_task(ask(engine, wide(3, tokens=4)))
        await eventually(lambda: engine.load().waiting == 3)
        steps.grant(3)
        answer = await first
        assert answer.result.outcome is Outcome.COMPLETED
        assert answer.result.usage.completion_tokens == 9
        await eventually(lambda: engine.load().running == 3)
        # One of the second's was let in beside the first's, two steps before the others.
        load = engine.load()
        assert (load.running, load.waiting, load.generated_tokens) == (3, 0, 9 + 2)
        steps.grant(4)
        assert (await second).result.usage.completion_tokens == 12
        load = engine.load()
        assert (load.running, load.waiting, load.generated_tokens) == (0, 0, 21)
    finally:
        await engine.stop()


async def test_sequences_of_a_better_priority_are_let_in_first() -> None:
    steps = Steps()
    engine = SimEngine(slots=2, sleep=steps)
    await engine.start()
    try:
        asked = [
            asyncio.create_task(ask(engine, wide(2, priority=priority))) for priority in (0, 9, 1)
        ]
        await eventually(lambda: engine.load().waiting == 4)
        steps.grant(6)
        await asyncio.gather(asked[0], asked[2])
        assert not asked[1].done()
        steps.grant(3)
        await asked[1]
    finally:
        await engine.stop()
