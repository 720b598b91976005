"""What every engine owes its worker. Run against the simulated engine and against vLLM.

Plain functions and asserts: this also runs in the engine's environment, which has no pytest.
"""

import asyncio

from gpu_workers.engine import Engine, EngineDescription, Output, Result
from gpu_workers.protocol.messages import Api, Envelope, Outcome, TokenUsage
from tests.support.workers.asking import ENDLESS, QUESTION, Answer, Clause, ask
from tests.support.workers.envelopes import make_envelope


async def it_describes_itself(engine: Engine, description: EngineDescription) -> None:
    assert description.slots > 0
    assert description.context_tokens > 0
    assert description.kv_cache_tokens >= description.context_tokens
    assert description.template_overhead_tokens > 0
    assert description.max_token_bytes > 1
    assert description.can_resume or "resumption" in description.degraded
    await engine.check_health()


async def a_stream_begins_with_the_role_and_ends_with_one_result(
    engine: Engine, description: EngineDescription
) -> None:
    envelope = make_envelope(QUESTION, max_output_tokens=24)
    answer = await ask(engine, envelope)
    first, last = answer.events[0], answer.events[-1]
    assert answer.result.outcome is Outcome.COMPLETED
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0]["finish_reason"] == answer.result.finish_reason
    assert all(event["id"] == f"chatcmpl-{envelope.request_id}" for event in answer.events)
    assert all(event["object"] == "chat.completion.chunk" for event in answer.events)
    assert all(event["model"] == envelope.model for event in answer.events)
    assert answer.text()
    assert answer.result.body is None


async def counts_are_cumulative_and_equal_the_results(
    engine: Engine, description: EngineDescription
) -> None:
    answer = await ask(engine, make_envelope(QUESTION, max_output_tokens=24))
    counts = [output.completion_tokens for output in answer.outputs]
    ids = [token_id for output in answer.outputs for token_id in output.token_ids]
    assert counts == sorted(counts)
    assert counts[-1] == len(ids) == answer.result.usage.completion_tokens
    assert answer.result.usage.prompt_tokens > 0


async def the_first_output_has_the_count_of_the_prompt(
    engine: Engine, description: EngineDescription
) -> None:
    answer = await ask(engine, make_envelope(QUESTION, max_output_tokens=4))
    assert answer.outputs[0].prompt_tokens == answer.result.usage.prompt_tokens > 0
    body = {"prompt": ["A penstock is", "A turbine is"], "max_tokens": 4, "temperature": 0}
    several = await ask(engine, make_envelope(body, api=Api.COMPLETIONS))
    whole = several.result.usage.prompt_tokens
    assert several.outputs[0].prompt_tokens in (0, whole), "never the count of some of them"


async def it_tells_how_it_does(engine: Engine, description: EngineDescription) -> None:
    before = engine.stats()
    await ask(engine, make_envelope(ENDLESS, max_output_tokens=16))
    stats = engine.stats()
    assert stats.kv_used is not None
    assert 0 <= stats.kv_used <= 1
    assert stats.batch_used is not None
    assert 1 / description.slots <= stats.batch_used <= 1
    assert stats.step_us is not None
    assert 0 < stats.step_us < 5_000_000
    assert stats.preemptions is not None
    assert stats.preemptions == before.preemptions, "there was room"
    if stats.prefix_asked_tokens is not None:
        assert before.prefix_asked_tokens is not None
        assert stats.prefix_asked_tokens > before.prefix_asked_tokens
        assert stats.prefix_hit_tokens is not None
        assert stats.prefix_hit_tokens <= stats.prefix_asked_tokens
    assert stats.drafted_tokens is None, "no speculation is configured"


async def the_tiers_context_bounds_prompt_and_output_together(
    engine: Engine, description: EngineDescription
) -> None:
    prompt = (await ask(engine, make_envelope(ENDLESS, max_output_tokens=1))).result.usage
    context = prompt.prompt_tokens + 5
    for stream in (True, False):
        envelope = make_envelope(
            ENDLESS, stream=stream, max_output_tokens=32, max_context_tokens=context
        )
        answer = await ask(engine, envelope)
        assert answer.result.usage.completion_tokens == 5
        assert answer.result.finish_reason == "length"
        envelope = make_envelope(ENDLESS, stream=stream, max_context_tokens=prompt.prompt_tokens)
        refused = await ask(engine, envelope)
        assert refused.result.outcome is Outcome.REFUSED
        assert refused.result.error is not None
        assert refused.result.error.code == "context_length_exceeded"
        assert refused.result.error.param == "messages"


async def usage_is_streamed_only_where_it_was_asked_for(
    engine: Engine, description: EngineDescription
) -> None:
    asked = QUESTION | {"stream_options": {"include_usage": True}}
    answer = await ask(engine, make_envelope(asked, max_output_tokens=8))
    last, usage = answer.events[-1], answer.result.usage
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == usage.prompt_tokens
    assert last["usage"]["completion_tokens"] == usage.completion_tokens
    assert last["usage"]["total_tokens"] == usage.prompt_tokens + usage.completion_tokens
    silent = await ask(engine, make_envelope(QUESTION, max_output_tokens=8))
    assert all(event["choices"] for event in silent.events)


async def without_streaming_there_is_one_body_with_the_same_text(
    engine: Engine, description: EngineDescription
) -> None:
    streamed = await ask(engine, make_envelope(QUESTION, max_output_tokens=16))
    envelope = make_envelope(QUESTION, stream=False, max_output_tokens=16)
    whole = await ask(engine, envelope)
    assert whole.outputs == []
    assert whole.body["id"] == f"chatcmpl-{envelope.request_id}"
    assert whole.body["object"] == "chat.completion"
    choice = whole.body["choices"][0]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == streamed.text()
    assert choice["finish_reason"] == whole.result.finish_reason
    assert whole.body["usage"]["completion_tokens"] == whole.result.usage.completion_tokens
    assert whole.result.first_token_ns is not None


async def completions_have_their_own_shape(engine: Engine, description: EngineDescription) -> None:
    body = {"prompt": "A penstock is", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    envelope = make_envelope(body, api=Api.COMPLETIONS, max_output_tokens=64)
    streamed = await ask(engine, envelope)
    assert all(event["object"] == "text_completion" for event in streamed.events)
    assert all(event["id"] == f"cmpl-{envelope.request_id}" for event in streamed.events)
    whole = await ask(
        engine, make_envelope(body, api=Api.COMPLETIONS, stream=False, max_output_tokens=64)
    )
    assert whole.body["choices"][0]["text"] == streamed.text()
    assert whole.result.usage.completion_tokens == 12


async def the_bound_of_the_envelope_holds_where_the_client_named_none(
    engine: Engine, description: EngineDescription
) -> None:
    for stream in (True, False):
        answer = await ask(engine, make_envelope(ENDLESS, stream=stream, max_output_tokens=7))
        assert answer.result.usage.completion_tokens == 7
        assert answer.result.finish_reason == "length"


async def the_bound_of_the_envelope_holds_where_the_client_named_more(
    engine: Engine, description: EngineDescription
) -> None:
    answer = await ask(engine, make_envelope(ENDLESS | {"max_tokens": 50}, max_output_tokens=7))
    assert answer.result.usage.completion_tokens == 7


async def a_smaller_bound_of_the_client_holds(
    engine: Engine, description: EngineDescription
) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        answer = await ask(engine, make_envelope(ENDLESS | {name: 3}, max_output_tokens=7))
        assert answer.result.usage.completion_tokens == 3


async def a_stop_string_ends_the_text_before_it(
    engine: Engine, description: EngineDescription
) -> None:
    full = (await ask(engine, make_envelope(ENDLESS, max_output_tokens=24))).text()
    stop = full[len(full) // 2 : len(full) // 2 + 4]
    stopped = await ask(engine, make_envelope(ENDLESS | {"stop": [stop]}, max_output_tokens=24))
    assert stopped.text() == full[: full.index(stop)]
    assert stopped.result.finish_reason == "stop"


async def several_choices_are_told_apart(engine: Engine, description: EngineDescription) -> None:
    body = ENDLESS | {"n": 2, "temperature": 1, "seed": 1}
    streamed = await ask(engine, make_envelope(body, max_output_tokens=6))
    assert streamed.text(0)
    assert streamed.text(1)
    assert streamed.result.usage.completion_tokens == 12
    assert all(output.token_ids == [] for output in streamed.outputs)
    whole = await ask(engine, make_envelope(body, stream=False, max_output_tokens=6))
    assert [choice["index"] for choice in whole.body["choices"]] == [0, 1]
    assert whole.result.usage.completion_tokens == 12


async def what_results_count_is_what_the_engine_has_generated(
    engine: Engine, description: EngineDescription
) -> None:
    """Also of requests that were aborted, and of what was generated after their abort."""
    before = engine.load().generated_tokens
    whole = [
        make_envelope(QUESTION, stream=stream, max_output_tokens=12) for stream in (True, False)
    ]
    several = make_envelope(ENDLESS | {"n": 2, "temperature": 1}, max_output_tokens=5)
    resumed = make_envelope(ENDLESS, max_output_tokens=9, resumed_token_ids=[5, 6, 7])
    counts = [
        (await ask(engine, each)).result.usage.completion_tokens for each in (*whole, several)
    ]
    if description.can_resume:
        counts.append((await ask(engine, resumed)).result.usage.completion_tokens - 3)
    left = make_envelope(ENDLESS, max_output_tokens=description.context_tokens)
    answer, outputs = Answer(), 0
    async with asyncio.timeout(60):
        async for item in engine.generate(left):
            outputs += isinstance(item, Output)
            if isinstance(item, Result):
                answer.results.append(item)
            elif outputs == 4:
                await engine.abort(left.request_id)
    counts.append(answer.result.usage.completion_tokens)
    assert engine.load().generated_tokens - before == sum(counts)


async def a_prompt_beyond_the_context_is_refused(
    engine: Engine, description: EngineDescription
) -> None:
    words = " water" * (description.context_tokens * description.max_token_bytes // 5)
    body = {"messages": [{"role": "user", "content": words}]}
    for stream in (True, False):
        answer = await ask(engine, make_envelope(body, stream=stream))
        error = answer.result.error
        assert answer.outputs == []
        assert answer.result.outcome is Outcome.REFUSED
        assert answer.result.usage.completion_tokens == 0
        assert error is not None
        assert (error.status, error.type) == (400, "invalid_request_error")
        assert error.code == "context_length_exceeded"


async def a_prompt_beyond_what_was_reserved_for_it_is_refused(
    engine: Engine, description: EngineDescription
) -> None:
    prompts = {"prompt": ["A penstock is", "A turbine is"], "max_tokens": 2, "temperature": 0}
    for api, body in ((Api.CHAT_COMPLETIONS, QUESTION), (Api.COMPLETIONS, prompts)):
        counted = (await ask(engine, make_envelope(body, api=api))).result.usage.prompt_tokens
        generated = engine.load().generated_tokens
        for stream in (True, False):
            envelope = make_envelope(body, api=api, stream=stream, prompt_bound=counted - 1)
            answer = await ask(engine, envelope)
            assert answer.outputs == []
            assert answer.result.outcome is Outcome.REFUSED
            assert answer.result.usage == TokenUsage()
            assert answer.result.error is not None
            assert answer.result.error.code == "prompt_beyond_reservation"
            assert answer.result.error.status == 400
            for part in (f"{counted} tokens", f"only {counted - 1} were reserved", "template"):
                assert part in answer.result.error.message
        assert engine.load().generated_tokens == generated
        for bound in (0, counted):
            served = await ask(engine, make_envelope(body, api=api, prompt_bound=bound))
            assert served.result.outcome is Outcome.COMPLETED
    if description.can_resume:
        counted = (await ask(engine, make_envelope(QUESTION))).result.usage.prompt_tokens
        resumed = make_envelope(ENDLESS, prompt_bound=counted, resumed_token_ids=[5, 6, 7])
        assert (await ask(engine, resumed)).result.outcome is Outcome.COMPLETED


async def more_least_tokens_than_the_bound_are_refused(
    engine: Engine, description: EngineDescription
) -> None:
    answer = await ask(engine, make_envelope(QUESTION | {"min_tokens": 9}, max_output_tokens=8))
    assert answer.result.outcome is Outcome.REFUSED
    assert answer.result.error is not None
    assert answer.result.error.status == 400


async def the_load_shows_what_runs(engine: Engine, description: EngineDescription) -> None:
    envelope = make_envelope(ENDLESS, max_output_tokens=200)
    seen = 0
    async with asyncio.timeout(60):
        async for item in engine.generate(envelope):
            if isinstance(item, Output):
                seen = max(seen, engine.load().running)
                await engine.abort(envelope.request_id)
    assert seen == 1
    assert engine.load().running == engine.load().waiting == 0


async def many_requests_at_once_all_end(engine: Engine, description: EngineDescription) -> None:
    envelopes = [make_envelope(ENDLESS, max_output_tokens=12) for _ in range(24)]
    answers = await asyncio.gather(*(ask(engine, envelope) for envelope in envelopes))
    assert {answer.result.usage.completion_tokens for answer in answers} == {12}


async def seeds_hold_for_prompts_that_one_step_cannot_take_together(
    engine: Engine, description: EngineDescription
) -> None:
    """Some of them come into the engine in pieces."""
    words = ("water gate turbine penstock " * description.context_tokens).encode()
    length = description.context_tokens * 3 // 4

    def seeded(seed: int, salt: str) -> Envelope:
        prompt = list(words[seed : seed + length])  # any vocabulary has as many tokens
        fields = {"prompt": prompt, "temperature": 2, "seed": seed, "max_tokens": 2}
        return make_envelope(
            fields | {"ignore_eos": True}, api=Api.COMPLETIONS, cache_salt=f"c2FsdC{salt}{seed}"
        )

    together = await asyncio.gather(*(ask(engine, seeded(seed, "A")) for seed in range(6)))
    alone = [await ask(engine, seeded(seed, "B")) for seed in range(6)]
    for answer in (*together, *alone):
        assert answer.result.outcome is Outcome.COMPLETED, answer.result
    assert [each.text() for each in together] == [each.text() for each in alone]
    await engine.check_health()


CLAUSES: list[Clause] = [
    it_describes_itself,
    a_stream_begins_with_the_role_and_ends_with_one_result,
    counts_are_cumulative_and_equal_the_results,
    what_results_count_is_what_the_engine_has_generated,
    the_first_output_has_the_count_of_the_prompt,
    it_tells_how_it_does,
    the_tiers_context_bounds_prompt_and_output_together,
    usage_is_streamed_only_where_it_was_asked_for,
    without_streaming_there_is_one_body_with_the_same_text,
    completions_have_their_own_shape,
    the_bound_of_the_envelope_holds_where_the_client_named_none,
    the_bound_of_the_envelope_holds_where_the_client_named_more,
    a_smaller_bound_of_the_client_holds,
    a_stop_string_ends_the_text_before_it,
    several_choices_are_told_apart,
    a_prompt_beyond_the_context_is_refused,
    a_prompt_beyond_what_was_reserved_for_it_is_refused,
    more_least_tokens_than_the_bound_are_refused,
    the_load_shows_what_runs,
    many_requests_at_once_all_end,
    seeds_hold_for_prompts_that_one_step_cannot_take_together,
]
