"""What becomes of a vLLM that is not the one we know: each clause breaks something inside it, has
the engine probe again, and is served on the path that is left.

Plain functions and asserts: this also runs in the engine's environment, which has no pytest.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from gpu_workers.engine import EngineDescription
from gpu_workers.protocol.messages import Outcome
from gpu_workers.vllm.parts import Part
from tests.support.workers.asking import ENDLESS, ask
from tests.support.workers.envelopes import make_envelope

ProbeClause = Callable[[Any], Awaitable[None]]


@contextmanager
def replaced(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


@asynccontextmanager
async def broken(
    engine: Any, owner: Any, name: str, replacement: Any
) -> AsyncIterator[EngineDescription]:
    """The engine probed anew with this broken inside vLLM; afterwards as it was."""
    with replaced(owner, name, replacement):
        yield await engine.open()
    assert (await engine.open()).degraded == ()


async def the_vllm_that_we_know_is_served_in_full(engine: Any) -> None:
    assert (await engine.open()).degraded == ()


async def outputs_that_cannot_be_diverted_wake_the_task_that_asked(engine: Any) -> None:
    from vllm.v1.engine.output_processor import RequestOutputCollector

    put = RequestOutputCollector.put
    sealed = property(lambda queue: lambda output: put(queue, output))
    async with broken(engine, RequestOutputCollector, "put", sealed) as description:
        assert description.degraded == (Part.OUTPUT_DIVERSION,)
        answer = await ask(engine, make_envelope(ENDLESS, max_output_tokens=20))
    assert answer.result.outcome is Outcome.COMPLETED
    assert answer.result.usage.completion_tokens == 20
    assert answer.text()


async def a_stream_that_vllm_renders_otherwise_is_left_to_vllm(engine: Any) -> None:
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat

    own = OpenAIServingChat.chat_completion_stream_generator

    async def with_a_new_field(*arguments: Any, **options: Any) -> AsyncIterator[str]:
        async for event in own(*arguments, **options):
            yield event.replace('data: {"id"', 'data: {"new":1,"id"')

    async with broken(
        engine, OpenAIServingChat, "chat_completion_stream_generator", with_a_new_field
    ) as description:
        assert description.degraded == (Part.CHAT_FAST_PATH,)
        answer = await ask(engine, make_envelope(ENDLESS, max_output_tokens=20))
    assert answer.result.usage.completion_tokens == 20
    assert all(event["new"] == 1 for event in answer.events)


async def a_vllm_that_adds_requests_by_another_way_resumes_none(engine: Any) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    from gpu_workers.vllm.client import CountingLLM

    async with broken(engine, CountingLLM, "_add_request", AsyncLLM._add_request) as description:
        assert description.degraded == (Part.RESUMPTION,)
        assert not description.can_resume
        answer = await ask(engine, make_envelope(ENDLESS, max_output_tokens=20))
    assert answer.result.usage.completion_tokens == 20


async def request_states_that_are_not_as_we_know_them_resume_nothing(engine: Any) -> None:
    from vllm.v1.engine.output_processor import RequestState

    make = RequestState.make_request_output

    def with_more_arguments(state: Any, *arguments: Any, **options: Any) -> Any:
        if len(arguments) + len(options) < 6:  # vLLM itself gives as many, or more
            raise TypeError("missing required arguments")
        return make(state, *arguments, **options)

    async with broken(
        engine, RequestState, "make_request_output", with_more_arguments
    ) as description:
        assert description.degraded == (Part.RESUMPTION,)
        answer = await ask(engine, make_envelope(ENDLESS, max_output_tokens=20))
    assert answer.result.usage.completion_tokens == 20
    assert not engine.load().held, "what failed leaves nothing behind"


async def queue_limits_that_bound_nothing_are_reported(engine: Any) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    def admit(*_: Any, **__: Any) -> None:
        return None

    async with broken(engine, AsyncLLM, "check_admission", admit) as description:
        assert description.degraded == (Part.QUEUE_LIMITS,)


async def an_abort_that_ends_nothing_is_reported(engine: Any) -> None:
    from vllm.v1.engine.async_llm import AsyncLLM

    async def ignore(*_: Any, **__: Any) -> None:
        return None

    async with broken(engine, AsyncLLM, "abort", ignore) as description:
        assert description.degraded == (Part.ABORT,)


async def steps_that_are_not_reported_leave_the_count_to_the_results(engine: Any) -> None:
    from gpu_workers.vllm.stats import StepStats

    def ignore(*_: Any, **__: Any) -> None:
        return None

    with replaced(StepStats, "record", ignore):
        description = await engine.open()
        assert description.degraded == (Part.STEP_STATS,)
        before = engine.load().generated_tokens
        answer = await ask(engine, make_envelope(ENDLESS, max_output_tokens=20))
        load = engine.load()
    assert answer.result.usage.completion_tokens == 20
    assert load.generated_tokens == before + 20
    assert not load.held, "so that it is never taken for hung"


# The last of them spoils the engine's own count.
PROBE_CLAUSES: list[ProbeClause] = [
    the_vllm_that_we_know_is_served_in_full,
    outputs_that_cannot_be_diverted_wake_the_task_that_asked,
    a_stream_that_vllm_renders_otherwise_is_left_to_vllm,
    a_vllm_that_adds_requests_by_another_way_resumes_none,
    request_states_that_are_not_as_we_know_them_resume_nothing,
    queue_limits_that_bound_nothing_are_reported,
    an_abort_that_ends_nothing_is_reported,
    steps_that_are_not_reported_leave_the_count_to_the_results,
]
