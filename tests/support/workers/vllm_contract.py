"""What holds for vLLM alone: what only a tokenizer, template or grammar can judge, and caching."""

import asyncio
import re
from typing import Any

import msgspec

from gpu_workers.engine import Engine, EngineDescription
from gpu_workers.protocol.messages import Api, Outcome
from tests.support.polling import eventually
from tests.support.workers.asking import ENDLESS, QUESTION, Clause, ask
from tests.support.workers.envelopes import make_envelope

TOOL = {"type": "function", "function": {"name": "gate", "parameters": {"type": "object"}}}

LONG_QUESTION = {
    "messages": [{"role": "user", "content": "What does a penstock carry to the turbine? " * 60}],
    "temperature": 0,
}


async def _is_refused(engine: Engine, fields: dict[str, Any]) -> None:
    for stream in (True, False):
        answer = await ask(engine, make_envelope(QUESTION | fields, stream=stream))
        assert answer.result.outcome is Outcome.REFUSED, (fields, answer.result)
        assert answer.result.error is not None
        assert answer.result.error.status == 400
        assert answer.result.error.type == "invalid_request_error"
        assert answer.result.usage.completion_tokens == 0
        assert answer.outputs == []
    await engine.check_health()


async def a_bad_grammar_is_refused_before_the_engine(
    engine: Engine, description: EngineDescription
) -> None:
    for fields in (
        {"structured_outputs": {"regex": "(["}},
        {"structured_outputs": {"grammar": "root ::= ("}},
        {"structured_outputs": {"json": {"type": "no such type"}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": 7}},
            }
        },
    ):
        await _is_refused(engine, fields)


async def what_would_harm_the_engine_is_refused(
    engine: Engine, description: EngineDescription
) -> None:
    for fields in (
        {"temperature": -1},
        {"temperature": float("nan")},
        {"n": 100_000},
        {"n": 0},
        {"min_tokens": -1},
        {"min_tokens": 10_000},
        {"min_tokens": 2, "stop_token_ids": [10_000_000]},
        {"logit_bias": {"10000000": 1}},
        {"top_p": 0},
        {"top_logprobs": 1000, "logprobs": True},
        {"allowed_token_ids": [10_000_000]},
    ):
        await _is_refused(engine, fields)
    answer = await ask(engine, make_envelope(ENDLESS, max_output_tokens=4))
    assert answer.result.outcome is Outcome.COMPLETED


async def a_grammar_shapes_the_answer(engine: Engine, description: EngineDescription) -> None:
    fields = {"structured_outputs": {"choice": ["gate", "turbine"]}}
    answer = await ask(engine, make_envelope(QUESTION | fields))
    assert answer.text() in ("gate", "turbine")


async def a_prefix_is_cached_for_the_same_salt_only(
    engine: Engine, description: EngineDescription
) -> None:
    salts = ("c2FsdC1hY21l", "c2FsdC1hY21l", "c2FsdC1nbG9iZXg")
    cached = [
        (
            await ask(engine, make_envelope(LONG_QUESTION, cache_salt=salt, max_output_tokens=2))
        ).result.usage.cached_tokens
        for salt in salts
    ]
    assert cached[0] == 0
    assert cached[1] > 0
    assert cached[2] == 0


async def logprobs_are_vllms_own(engine: Engine, description: EngineDescription) -> None:
    fields = {"logprobs": True, "top_logprobs": 2}
    answer = await ask(engine, make_envelope(QUESTION | fields, stream=False, max_output_tokens=4))
    content = answer.body["choices"][0]["logprobs"]["content"]
    assert len(content) == answer.result.usage.completion_tokens
    assert all(len(token["top_logprobs"]) == 2 for token in content)


async def the_fast_path_of_plain_text_streams_what_vllms_own_path_does(
    engine: Engine, description: EngineDescription
) -> None:
    # Only where vLLM is: this module is imported without it, for the names of its clauses.
    from gpu_workers.vllm.endpoints.registry import ENDPOINTS

    variants: list[dict[str, Any]] = [
        {},
        {"stream_options": {"include_usage": True}},
        {"stop": ["e"]},
        {"max_tokens": 1},
        {"ignore_eos": True},
        {"temperature": 1, "seed": 7, "ignore_eos": True},
        {"tools": [TOOL], "tool_choice": "none"},
        {"messages": [{"role": "user", "content": 'Öl, "Wasser" \\ 水\n\t\u0001'}]},
    ]
    asked = [(Api.CHAT_COMPLETIONS, QUESTION | fields) for fields in variants]
    prompts: list[dict[str, Any]] = [
        {"prompt": "Water"},
        {"prompt": 'Öl, "Wasser" \\ 水\n\t\u0001'},
    ]
    prompts += [{"prompt": "Water"} | fields for fields in variants[1:6]]
    asked += [(Api.COMPLETIONS, {"temperature": 0} | fields) for fields in prompts]
    for api, fields in asked:
        fast_path = ENDPOINTS[api].fast_path
        assert fast_path is not None
        streams = []
        for fast_path.is_enabled in (False, True):
            envelope = make_envelope(fields, api=api, max_output_tokens=40)
            answer = await ask(engine, envelope)
            assert answer.result.outcome is Outcome.COMPLETED, answer.result
            chunks = [chunk for output in answer.outputs for chunk in output.chunks]
            streams.append(_without_pace(chunks, envelope.request_id))
        assert streams[0] == streams[1], (fields, streams)


async def the_load_tells_what_the_engine_has_no_room_for(
    engine: Engine, description: EngineDescription
) -> None:
    fields = {"n": description.slots + 4, "temperature": 1.0}
    answer = asyncio.create_task(
        ask(engine, make_envelope(ENDLESS | fields, stream=False, max_output_tokens=120))
    )
    await eventually(lambda: engine.load().waiting == 4, 20)
    assert engine.load().running == description.slots
    assert (await answer).result.outcome is Outcome.COMPLETED
    load = engine.load()
    assert (load.running, load.waiting) == (0, 0)


async def more_than_the_backstop_is_refused_as_overload(
    engine: Engine, description: EngineDescription
) -> None:
    half = {"n": 8 * description.slots, "temperature": 1.0}
    halves = [make_envelope(ENDLESS | half, stream=False, max_output_tokens=200) for _ in "ab"]
    running = [asyncio.create_task(ask(engine, envelope)) for envelope in halves]
    await eventually(lambda: engine.load().running == description.slots, 20)
    answer = await ask(engine, make_envelope(QUESTION))
    assert answer.result.outcome is Outcome.FAILED
    assert answer.result.error is not None
    assert answer.result.error.code == "engine_overloaded"
    for envelope in halves:
        await engine.abort(envelope.request_id)
    await asyncio.gather(*running)
    await engine.check_health()


async def a_character_of_several_tokens_may_be_cut_anywhere(
    engine: Engine, description: EngineDescription
) -> None:
    text = "Öl und 水 für die 🌊"
    asked: dict[str, Any] = {"prompt": text, "max_tokens": 1, "return_token_ids": True}
    answer = await ask(engine, make_envelope(asked, api=Api.COMPLETIONS, stream=False))
    ids: list[int] = answer.body["choices"][0]["prompt_token_ids"]
    assert len(ids) > len(text.split()) + 4, "the text has characters of several tokens"
    for count in range(1, len(ids)):
        # The next token is forced, so that the answer is known.
        forced = {"allowed_token_ids": [ids[count]], "max_tokens": count + 1, "ignore_eos": True}
        for fields in (QUESTION | forced, {"prompt": "A", "temperature": 0} | forced):
            resumed = await ask(
                engine,
                make_envelope(
                    fields,
                    api=Api.COMPLETIONS if "prompt" in fields else Api.CHAT_COMPLETIONS,
                    resumed_token_ids=ids[:count],
                ),
            )
            assert text.startswith(resumed.text().strip()), (count, resumed.text())
            assert resumed.result.usage.completion_tokens == count + 1
    assert resumed.text().strip() == text


def _without_pace(chunks: list[bytes], request_id: str) -> tuple[str, list[bytes]]:
    """A stream's text and the forms of its chunks. How many tokens share a chunk, and whether the
    last has any, depends on how busy the machine is, so forms that repeat count once."""
    text = ""
    forms: list[bytes] = []
    for chunk in chunks:
        for choice in msgspec.json.decode(chunk)["choices"]:
            text += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
        form = re.sub(rb'"(?:content|text)":"(?:[^"\\\\]|\\\\.)*"', b'"content":"some"', chunk)
        form = re.sub(rb'"created":\d+', b'"created":0', form)
        form = form.replace(request_id.encode(), b"id")
        if not forms or forms[-1] != form:
            forms.append(form)
    return text, forms


VLLM_CLAUSES: list[Clause] = [
    the_fast_path_of_plain_text_streams_what_vllms_own_path_does,
    a_bad_grammar_is_refused_before_the_engine,
    what_would_harm_the_engine_is_refused,
    a_grammar_shapes_the_answer,
    a_prefix_is_cached_for_the_same_salt_only,
    the_load_tells_what_the_engine_has_no_room_for,
    more_than_the_backstop_is_refused_as_overload,
    logprobs_are_vllms_own,
    a_character_of_several_tokens_may_be_cut_anywhere,
]
