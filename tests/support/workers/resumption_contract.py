"""What every engine owes a request that resumes from another attempt's output.

The greedy answer of an undisturbed request is the measure: cut after each of its tokens and
resumed, text, tokens, counts and end are the same. Runs in the engine's environment too.
"""

import asyncio
from typing import Any

from gpu_workers.engine import Engine, EngineDescription, Output
from gpu_workers.protocol.messages import Api, Envelope, Outcome
from tests.support.workers.asking import ENDLESS, QUESTION, Answer, Clause, ask
from tests.support.workers.envelopes import make_envelope

USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}
PROMPT: dict[str, Any] = {"prompt": "A penstock is", "temperature": 0}
VARIANTS: list[tuple[Api, dict[str, Any]]] = [
    (Api.CHAT_COMPLETIONS, QUESTION | USAGE),
    (Api.CHAT_COMPLETIONS, ENDLESS),
    (Api.CHAT_COMPLETIONS, QUESTION | {"min_tokens": 20}),
    (Api.COMPLETIONS, PROMPT | USAGE | {"max_tokens": 24}),
    (Api.COMPLETIONS, PROMPT | {"ignore_eos": True, "max_tokens": 10}),
]
MOST_TOKENS = 24
CACHED_TOKENS = 280  # fill a block of the prefix cache, also of a CPU's large ones


def _ids(answer: Answer) -> list[int]:
    return [token_id for output in answer.outputs for token_id in output.token_ids]


def _text(outputs: list[Output]) -> str:
    return Answer(outputs=outputs).text()


def _envelope(api: Api, body: dict[str, Any], **options: Any) -> Envelope:
    return make_envelope(body, api=api, max_output_tokens=MOST_TOKENS, **options)


async def every_output_tells_the_tokens_that_it_counts(
    engine: Engine, description: EngineDescription
) -> None:
    for api, body in VARIANTS:
        told = 0
        for output in (await ask(engine, _envelope(api, body))).outputs:
            told += len(output.token_ids)
            assert told == output.completion_tokens


async def a_resumed_stream_equals_an_undisturbed_one_wherever_it_was_cut(
    engine: Engine, description: EngineDescription
) -> None:
    for api, body in VARIANTS:
        whole = await ask(engine, _envelope(api, body))
        ids = _ids(whole)
        assert len(ids) > 4
        for count in range(1, len(ids) + 1):
            envelope = _envelope(api, body, resumed_token_ids=ids[:count])
            resumed = await ask(engine, envelope)
            where = (api, body, count)
            assert resumed.text() == whole.text(), where
            assert _ids(resumed) == ids, where
            assert resumed.result.outcome is Outcome.COMPLETED, where
            assert resumed.result.finish_reason == whole.result.finish_reason, where
            assert resumed.result.usage.prompt_tokens == whole.result.usage.prompt_tokens, where
            assert resumed.result.usage.completion_tokens == len(ids), where
            assert _without_ids(resumed.events[-1]) == _without_ids(whole.events[-1]), where


async def what_is_replayed_stands_apart_from_what_is_new(
    engine: Engine, description: EngineDescription
) -> None:
    """So that whoever has received a part can leave out exactly that."""
    for api, body in VARIANTS:
        whole = await ask(engine, _envelope(api, body))
        counts = [output.completion_tokens for output in whole.outputs]
        for count in sorted(set(counts) - {0}):
            envelope = _envelope(api, body, resumed_token_ids=_ids(whole)[:count])
            resumed = await ask(engine, envelope)
            received = [each for each in whole.outputs if each.completion_tokens <= count]
            replayed = [each for each in resumed.outputs if each.completion_tokens <= count]
            assert _text(replayed) == _text(received), (api, body, count)
            assert _tokens_apart(resumed, count)
            if count == counts[-1]:
                assert _frames_at(resumed, count) == _frames_at(whole, count)


async def a_resumed_answer_that_does_not_stream_is_whole(
    engine: Engine, description: EngineDescription
) -> None:
    for api, body in VARIANTS:
        silent = {name: value for name, value in body.items() if name != "stream_options"}
        ids = _ids(await ask(engine, _envelope(api, body)))
        whole = await ask(engine, _envelope(api, silent, stream=False))
        for count in (1, len(ids) // 2, len(ids)):
            envelope = _envelope(api, silent, stream=False, resumed_token_ids=ids[:count])
            resumed = await ask(engine, envelope)
            assert _without_ids(resumed.body) == _without_ids(whole.body)
            assert resumed.result.usage.completion_tokens == len(ids)


async def an_aborted_answer_that_did_not_stream_tells_what_it_generated(
    engine: Engine, description: EngineDescription
) -> None:
    body = ENDLESS | {"ignore_eos": True}
    ids = _ids(await ask(engine, make_envelope(body, max_output_tokens=400)))
    silent = make_envelope(body, stream=False, max_output_tokens=400)
    clock = make_envelope(body, max_output_tokens=400)
    result = await _aborted_with(engine, silent, clock)
    assert result.outcome is Outcome.CANCELLED
    assert result.token_ids
    assert result.token_ids == ids[: len(result.token_ids)]
    assert result.usage.completion_tokens == len(result.token_ids)


async def what_it_goes_on_from_is_no_part_of_the_cached_prompt(
    engine: Engine, description: EngineDescription
) -> None:
    """Prompt and output together fill blocks of the prefix cache that the prompt does not."""
    body = ENDLESS | USAGE
    whole = await ask(engine, make_envelope(body, max_output_tokens=CACHED_TOKENS))
    envelope = make_envelope(
        body, max_output_tokens=CACHED_TOKENS + 4, resumed_token_ids=_ids(whole)
    )
    resumed = await ask(engine, envelope)
    prompt_tokens = whole.result.usage.prompt_tokens
    assert resumed.result.usage.prompt_tokens == prompt_tokens
    assert resumed.result.usage.cached_tokens <= prompt_tokens
    assert all(output.cached_tokens <= prompt_tokens for output in resumed.outputs)


async def what_an_attempt_goes_on_from_is_not_judged_anew(
    engine: Engine, description: EngineDescription
) -> None:
    """Other tokens than this engine would have chosen stay: sampling has no memory."""
    ids = _ids(await ask(engine, make_envelope(ENDLESS, max_output_tokens=6)))
    other = list(reversed(ids))
    envelope = make_envelope(ENDLESS, max_output_tokens=12, resumed_token_ids=other)
    resumed = await ask(engine, envelope)
    assert _ids(resumed)[: len(other)] == other
    assert resumed.result.usage.completion_tokens == 12


async def _aborted_with(engine: Engine, silent: Envelope, clock: Envelope) -> Any:
    waiting = asyncio.create_task(ask(engine, silent))
    async with asyncio.timeout(60):
        outputs = 0
        async for item in engine.generate(clock):
            outputs += isinstance(item, Output)
            if outputs == 8:
                await engine.abort(silent.request_id)
                await engine.abort(clock.request_id)
        return (await waiting).result


def _tokens_apart(resumed: Answer, count: int) -> bool:
    """The first output with tokens has those of the replay and no other."""
    first = next(output for output in resumed.outputs if output.token_ids)
    return first.completion_tokens == len(first.token_ids) == count


def _frames_at(answer: Answer, count: int) -> int:
    return sum(output.completion_tokens == count for output in answer.outputs)


def _without_ids(event: dict[str, Any]) -> dict[str, Any]:
    """Two attempts of one request have one id; here they are two requests, a moment apart. The
    last delta's text depends on the pace."""
    kept = {name: value for name, value in event.items() if name not in ("id", "created")}
    for choice in kept.get("choices", ()):
        choice.pop("delta", None)
        if "text" in choice and event["object"] == "text_completion" and "usage" not in event:
            choice.pop("text")
    return kept


RESUMPTION_CLAUSES: list[Clause] = [
    every_output_tells_the_tokens_that_it_counts,
    a_resumed_stream_equals_an_undisturbed_one_wherever_it_was_cut,
    what_is_replayed_stands_apart_from_what_is_new,
    a_resumed_answer_that_does_not_stream_is_whole,
    an_aborted_answer_that_did_not_stream_tells_what_it_generated,
    what_it_goes_on_from_is_no_part_of_the_cached_prompt,
    what_an_attempt_goes_on_from_is_not_judged_anew,
]
