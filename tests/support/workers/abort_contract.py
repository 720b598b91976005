"""What every engine owes its worker where a request is aborted.

Plain functions and asserts: this also runs in the engine's environment, which has no pytest.
"""

import asyncio

from gpu_workers.engine import Engine, EngineDescription, Output, Result
from gpu_workers.protocol.messages import Api, Envelope, Outcome
from tests.support.polling import as_soon_as
from tests.support.workers.asking import ENDLESS, Answer, Clause, ask, gather
from tests.support.workers.envelopes import make_envelope


async def an_abort_ends_a_stream_with_what_was_generated(
    engine: Engine, description: EngineDescription
) -> None:
    envelope = make_envelope(ENDLESS, max_output_tokens=description.context_tokens)
    answer = Answer()
    async with asyncio.timeout(60):
        async for item in engine.generate(envelope):
            if isinstance(item, Result):
                answer.results.append(item)
            else:
                answer.outputs.append(item)
                if len(answer.outputs) == 4:
                    await engine.abort(envelope.request_id)
    assert answer.result.outcome is Outcome.CANCELLED
    assert answer.result.usage.completion_tokens >= answer.outputs[-1].completion_tokens > 0
    assert answer.result.usage.completion_tokens < description.context_tokens // 2


async def an_abort_of_a_request_that_does_not_stream_still_counts(
    engine: Engine, description: EngineDescription
) -> None:
    most = description.context_tokens
    for choices in ({}, {"n": 3, "temperature": 1}):
        silent = make_envelope(ENDLESS | choices, stream=False, max_output_tokens=most)
        clock = make_envelope(ENDLESS, max_output_tokens=most)
        waiting, outputs = asyncio.create_task(gather(engine.generate(silent))), 0
        async with asyncio.timeout(60):
            async for item in engine.generate(clock):
                outputs += isinstance(item, Output)
                if outputs == 8:
                    await engine.abort(silent.request_id)
                    await engine.abort(clock.request_id)
            answer = await waiting
        assert answer.result.outcome is Outcome.CANCELLED
        assert answer.result.usage.completion_tokens > 0
        assert answer.result.usage.prompt_tokens > 0
        assert answer.result.body is None


async def an_abort_of_several_choices_counts_them_all(
    engine: Engine, description: EngineDescription
) -> None:
    envelope = make_envelope(
        ENDLESS | {"n": 3, "temperature": 1}, max_output_tokens=description.context_tokens
    )
    answer, outputs = Answer(), 0
    async with asyncio.timeout(60):
        async for item in engine.generate(envelope):
            if isinstance(item, Result):
                answer.results.append(item)
                continue
            outputs += 1
            if outputs == 12:
                await engine.abort(envelope.request_id)
    assert answer.result.outcome is Outcome.CANCELLED
    assert answer.result.usage.completion_tokens >= 3


async def an_abort_after_some_choices_have_ended_is_a_cancellation(
    engine: Engine, description: EngineDescription
) -> None:
    """Whichever of them ended: what a client gets as complete has every choice it asked for."""
    long, short = "A penstock is " * 12, "A penstock is"
    asked = {"ignore_eos": True, "temperature": 1}
    counting = asked | {"prompt": long, "max_tokens": 1}
    counted = await ask(engine, make_envelope(counting, api=Api.COMPLETIONS))
    for prompts, n in (([long, short], 1), ([short, long], 1), ([long, short], 2)):
        for stream in (True, False):
            envelope = make_envelope(
                asked | {"prompt": prompts, "n": n, "max_tokens": 1000},
                api=Api.COMPLETIONS,
                stream=stream,
                max_output_tokens=1000,
                # So the tier's context leaves the long prompt much less room than the short one.
                max_context_tokens=counted.result.usage.prompt_tokens + 3,
            )
            of_long = 3 * n
            answer = await _abort_after(engine, envelope, 2 * of_long + n)
            assert answer.result.outcome is Outcome.CANCELLED, (prompts, n, stream)
            assert answer.result.body is None
            assert answer.result.usage.completion_tokens > 2 * of_long


async def an_abort_at_once_is_a_cancellation(
    engine: Engine, description: EngineDescription
) -> None:
    for stream in (True, False):
        envelope = make_envelope(ENDLESS, stream=stream, max_output_tokens=1000)
        running = asyncio.create_task(gather(engine.generate(envelope)))
        await asyncio.sleep(0)
        await engine.abort(envelope.request_id)
        async with asyncio.timeout(60):
            assert (await running).result.outcome is Outcome.CANCELLED


async def an_abort_of_an_unknown_request_is_no_error(
    engine: Engine, description: EngineDescription
) -> None:
    await engine.abort("0" * 32)


async def _abort_after(engine: Engine, envelope: Envelope, tokens: int) -> Answer:
    before = engine.load().generated_tokens
    asked = asyncio.create_task(gather(engine.generate(envelope)))
    await as_soon_as(lambda: engine.load().generated_tokens - before >= tokens)
    await engine.abort(envelope.request_id)
    async with asyncio.timeout(60):
        return await asked


ABORT_CLAUSES: list[Clause] = [
    an_abort_ends_a_stream_with_what_was_generated,
    an_abort_of_a_request_that_does_not_stream_still_counts,
    an_abort_of_several_choices_counts_them_all,
    an_abort_after_some_choices_have_ended_is_a_cancellation,
    an_abort_at_once_is_a_cancellation,
    an_abort_of_an_unknown_request_is_no_error,
]
