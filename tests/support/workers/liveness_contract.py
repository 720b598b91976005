"""How a worker sees that an engine is warm, has work and goes on with it.

Plain functions and asserts: this also runs in the engine's environment, which has no pytest.
"""

import asyncio
from typing import Any, Final

from gpu_workers.engine import Engine, EngineDescription
from gpu_workers.protocol.messages import Outcome
from tests.support.polling import eventually
from tests.support.workers.asking import ENDLESS, QUESTION, Clause, ask
from tests.support.workers.envelopes import make_envelope

# Beyond what the same streams see while nobody else asks.
MOST_ADDED_SECONDS: Final = 0.25
SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
KINDS: Final[tuple[dict[str, Any], ...]] = (
    {"logprobs": True, "top_logprobs": 5},
    {"presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "seed": 3},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    {"temperature": 0.8, "n": 2},
)


async def the_first_request_of_a_kind_holds_up_nobody(
    engine: Engine, description: EngineDescription
) -> None:
    loop, gaps = asyncio.get_running_loop(), list[float]()

    async def watch(stream: Any, last: list[float]) -> None:
        async for _ in stream:
            note(last)

    def note(last: list[float]) -> None:
        now = loop.time()
        gaps.append(now - last[0])
        last[0] = now

    def victim() -> "asyncio.Task[None]":
        last = [loop.time()]
        envelope = make_envelope(ENDLESS, max_output_tokens=1500)
        asked.append(envelope.request_id)
        return asyncio.create_task(
            watch(engine.generate(envelope, lambda _: lambda *_: note(last)), last)
        )

    asked = list[str]()
    victims = [victim() for _ in range(3)]
    await eventually(lambda: len(gaps) > 60, 30)
    usual = max(gaps[10:])
    for fields in KINDS:
        gaps.clear()
        answer = await ask(engine, make_envelope(QUESTION | fields, max_output_tokens=8))
        assert answer.result.outcome is Outcome.COMPLETED
        assert not all(each.done() for each in victims)
        assert max(gaps) < usual + MOST_ADDED_SECONDS, (fields, max(gaps), usual)
    for request_id in asked:
        await engine.abort(request_id)
    await asyncio.wait(victims)
    # What this is told comes after the last step of theirs.
    await ask(engine, make_envelope(QUESTION, max_output_tokens=2))


async def a_warm_up_leaves_nothing_behind(engine: Engine, description: EngineDescription) -> None:
    before = engine.load()
    await engine.warm_up()
    after = engine.load()
    assert after.generated_tokens == before.generated_tokens
    assert (after.running, after.waiting, after.held) == (0, 0, 0)


async def what_it_holds_and_its_steps_are_told(
    engine: Engine, description: EngineDescription
) -> None:
    before = engine.load()
    assert before.held == 0
    asked = asyncio.create_task(ask(engine, make_envelope(ENDLESS, max_output_tokens=16)))
    await eventually(lambda: asked.done() or engine.load().held == 1)
    await asked
    await eventually(lambda: engine.load().held == 0)
    assert engine.load().steps > before.steps


FIRST_CLAUSE: Clause = the_first_request_of_a_kind_holds_up_nobody
LIVENESS_CLAUSES: list[Clause] = [
    a_warm_up_leaves_nothing_behind,
    what_it_holds_and_its_steps_are_told,
]
