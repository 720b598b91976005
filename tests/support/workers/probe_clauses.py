"""What becomes of a vLLM that is not the one we know: each clause breaks something inside it, has
the engine probe again, and is served on the path that is left.

Plain functions and asserts: this also runs in the engine's environment, which has no pytest.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from gpu_workers.engine import EngineDescription
from gpu_workers.protocol.messages import Api, Outcome
from gpu_workers.vllm.parts import Part
from tests.support.workers.asking import ENDLESS, QUESTION, ask
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
    """The engine probed anew with this broken inside vLLM, which is mended afterwards."""
    with replaced(owner, name, replacement):
        yield await engine.open()


async def the_vllm_that_we_know_is_served_in_full(engine: Any) -> None:
    assert (await engine.open()).degraded == ()


async def outputs_that_cannot_be_diverted_wake_the_task_that_asked(engine: Any) -> None:
    from vllm.v1.engine.output_processor import RequestOutputCollector

    put = RequestOutputCollector.put
    sealed = property(lambda queue: lambda output: put(queue, output))
    async with broken(engine, RequestOutputCollector, "put", sealed) as description:
        assert description.degraded == (Part.OUTPUT_DIVERSION,)
        answers = [
            await ask(engine, make_envelope(ENDLESS | fields, max_output_tokens=20))
            for fields in ({}, {"logprobs": True})  # whose outputs are kept apart otherwise
        ]
    for answer in answers:
        assert answer.result.outcome is Outcome.COMPLETED, answer.result
        assert answer.result.usage.completion_tokens == 20
        assert answer.text()


def _with_a_new_field(generator: Any, *, only: str = "") -> Any:
    """A stream generator of vLLM's whose events have a field more, `only` those with this text."""

    async def generate(*arguments: Any, **options: Any) -> AsyncIterator[str]:
        async for event in generator(*arguments, **options):
            yield event.replace('data: {"id"', 'data: {"new":1,"id"') if only in event else event

    return generate


async def a_stream_that_vllm_renders_otherwise_is_left_to_vllm(engine: Any) -> None:
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion

    prompt = {"prompt": "Water", "ignore_eos": True, "max_tokens": 20}
    for owner, name, part, api, body in (
        (
            OpenAIServingChat,
            "chat_completion_stream_generator",
            Part.CHAT_FAST_PATH,
            Api.CHAT_COMPLETIONS,
            ENDLESS,
        ),
        (
            OpenAIServingCompletion,
            "completion_stream_generator",
            Part.COMPLETIONS_FAST_PATH,
            Api.COMPLETIONS,
            prompt,
        ),
    ):
        changed = _with_a_new_field(owner.__dict__[name])
        async with broken(engine, owner, name, changed) as description:
            assert description.degraded == (part,)
            answer = await ask(engine, make_envelope(body, api=api, max_output_tokens=20))
        assert answer.result.usage.completion_tokens == 20
        assert all(event["new"] == 1 for event in answer.events)


async def two_paths_that_vllm_renders_otherwise_are_both_reported(engine: Any) -> None:
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion

    chat, completion = "chat_completion_stream_generator", "completion_stream_generator"
    changed = _with_a_new_field(OpenAIServingCompletion.__dict__[completion])
    with replaced(OpenAIServingCompletion, completion, changed):
        changed = _with_a_new_field(OpenAIServingChat.__dict__[chat])
        async with broken(engine, OpenAIServingChat, chat, changed) as description:
            assert set(description.degraded) == {Part.CHAT_FAST_PATH, Part.COMPLETIONS_FAST_PATH}


async def log_probabilities_that_vllm_streams_otherwise_are_left_to_vllm(engine: Any) -> None:
    """In whole answers too."""
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion

    from gpu_workers.vllm.endpoints import chat_fast_path, completions_fast_path

    def fail(*_: Any) -> None:
        raise AssertionError("rendered by us")

    chat = (OpenAIServingChat, "chat_completion_stream_generator", Part.CHAT_FAST_PATH)
    completion = (
        OpenAIServingCompletion,
        "completion_stream_generator",
        Part.COMPLETIONS_FAST_PATH,
    )
    for (owner, name, part), module, renderer, api, body in (
        (chat, chat_fast_path, "chat_logprobs", Api.CHAT_COMPLETIONS, QUESTION),
        (
            completion,
            completions_fast_path,
            "completion_logprobs",
            Api.COMPLETIONS,
            {"prompt": "Water"},
        ),
    ):
        changed = _with_a_new_field(owner.__dict__[name], only='"logprobs":{')
        async with broken(engine, owner, name, changed) as description:
            assert description.degraded == (part,)
            with replaced(module, renderer, fail):
                whole = make_envelope(body | {"logprobs": 1}, api=api, stream=False)
                answer = await ask(engine, whole)
        assert answer.result.outcome is Outcome.COMPLETED, answer.result
        assert answer.body["choices"][0]["logprobs"] is not None


async def streams_with_tools_that_vllm_renders_otherwise_are_left_to_vllm(engine: Any) -> None:
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat

    name = "chat_completion_stream_generator"
    own = OpenAIServingChat.__dict__[name]
    changed = _with_a_new_field(own)

    def of_tools(chat: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        generate = changed if request.tools else own
        return generate(chat, request, *arguments, **options)

    async with broken(engine, OpenAIServingChat, name, of_tools) as description:
        assert description.degraded == (Part.CHAT_FAST_PATH,)


async def a_vllm_without_a_tool_parser_is_served_in_full(engine: Any) -> None:
    """Where no parser looks at them, deltas without text are sent too."""
    from vllm.parser import ParserManager

    none = classmethod(lambda *_, **__: None)
    async with broken(engine, ParserManager, "get_parser", none) as description:
        assert description.degraded == ()
        answer = await ask(engine, make_envelope(ENDLESS, max_output_tokens=20))
    assert answer.result.usage.completion_tokens == 20


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


async def adapters_that_are_mixed_up_are_not_served(engine: Any) -> None:
    """As where a kernel takes no adapter for the last one: the base is served without any."""
    from gpu_workers.vllm.adapters.loaded import LoadedAdapters
    from gpu_workers.vllm.generation import Generation

    of_request, own = Generation.__dict__["lora_request"], LoadedAdapters.request_of
    asked: list[Any] = []

    def noted(adapters: Any, name: str) -> Any:
        asked.append(own(adapters, name))
        return asked[-1]

    mixed_up = property(
        lambda generation: of_request.__get__(generation) or (asked and asked[-1]) or None,
        lambda generation, request: of_request.__set__(generation, request),
    )
    with replaced(LoadedAdapters, "request_of", noted):
        async with broken(engine, Generation, "lora_request", mixed_up) as description:
            assert description.degraded == (Part.ADAPTERS,)
            assert (description.adapter_slots, description.adapters_in_memory) == (0, 0)
            assert description.adapter_base is None
    answer = await ask(engine, make_envelope(QUESTION, adapter="0" * 64))
    assert answer.result.error is not None
    assert answer.result.error.code == "adapter_not_loaded"
    answer = await ask(engine, make_envelope(ENDLESS, max_output_tokens=20))
    assert answer.result.usage.completion_tokens == 20


# The last of them spoils the engine's own count.
PROBE_CLAUSES: list[ProbeClause] = [
    outputs_that_cannot_be_diverted_wake_the_task_that_asked,
    a_stream_that_vllm_renders_otherwise_is_left_to_vllm,
    two_paths_that_vllm_renders_otherwise_are_both_reported,
    log_probabilities_that_vllm_streams_otherwise_are_left_to_vllm,
    streams_with_tools_that_vllm_renders_otherwise_are_left_to_vllm,
    a_vllm_without_a_tool_parser_is_served_in_full,
    a_vllm_that_adds_requests_by_another_way_resumes_none,
    request_states_that_are_not_as_we_know_them_resume_nothing,
    queue_limits_that_bound_nothing_are_reported,
    an_abort_that_ends_nothing_is_reported,
    adapters_that_are_mixed_up_are_not_served,
    the_vllm_that_we_know_is_served_in_full,
    steps_that_are_not_reported_leave_the_count_to_the_results,
]
