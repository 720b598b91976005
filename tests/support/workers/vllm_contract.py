"""What holds for vLLM alone: what only a tokenizer, template or grammar can judge, and caching."""

import asyncio
import re
import string
from random import Random
from typing import Any

from gpu_workers.config import DEMO_MODEL_PATH
from gpu_workers.engine import Engine, EngineDescription
from gpu_workers.protocol.messages import Api, Outcome
from tests.support.polling import as_soon_as, eventually
from tests.support.workers.asking import ENDLESS, QUESTION, Answer, Clause, ask, gather
from tests.support.workers.envelopes import make_envelope

WAVE = 64
MOST_SEEDS = 500
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


async def no_prompt_is_refused_by_its_bytes_that_its_tokens_would_let_through(
    engine: Engine, description: EngineDescription
) -> None:
    """The bound against the tokenizer itself, over texts of all kinds."""
    from transformers import AutoTokenizer

    from gpu_workers.vllm.prompt_guard import token_lower_bound_of

    tokenizer = AutoTokenizer.from_pretrained(DEMO_MODEL_PATH)
    bound = token_lower_bound_of(tokenizer)
    assert bound is not None
    random = Random(1)
    vocabulary = sorted(tokenizer.get_vocab())
    alphabets = (string.printable, "aeiou ", " \n\t", "水é🌊\u0301\u200d", "0123456789.,-")
    for _ in range(2_000):
        size = random.randrange(1, 300)
        pieces = [
            "".join(random.choices(random.choice(alphabets), k=size)),
            tokenizer.decode([random.randrange(len(vocabulary)) for _ in range(size)]),
            random.choice(vocabulary) * random.randrange(1, 9),
        ]
        text = "".join(random.sample(pieces, k=random.randrange(1, 4)))
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert bound(text.encode()) <= len(ids), text
    # It is worth having: this fits by the longest token.
    digits = "7" * (description.context_tokens * description.max_token_bytes // 2)
    assert bound(digits.encode()) > description.context_tokens


async def an_abort_ends_a_request_whose_structure_is_being_tried(
    engine: Engine, description: EngineDescription
) -> None:
    grammar = "root ::= " + ' ("a" | "c")?' * 3000
    envelope = make_envelope(QUESTION | {"structured_outputs": {"grammar": grammar}})
    asking = asyncio.create_task(ask(engine, envelope))
    for _ in range(100):
        await asyncio.sleep(0)
    await engine.abort(envelope.request_id)
    assert (await asking).result.outcome is Outcome.CANCELLED


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


async def log_probabilities_in_pieces_are_what_vllms_own_path_gives(
    engine: Engine, description: EngineDescription
) -> None:
    from gpu_workers.vllm.endpoints.registry import ENDPOINTS

    several = ["A penstock is", "Wasser: 水 und"]
    seeded = {"temperature": 1.2, "seed": 3}
    variants: list[tuple[Api, dict[str, Any]]] = [
        (Api.CHAT_COMPLETIONS, QUESTION | {"logprobs": True}),
        (Api.CHAT_COMPLETIONS, ENDLESS | seeded | {"logprobs": True, "top_logprobs": 20, "n": 3}),
        (Api.CHAT_COMPLETIONS, QUESTION | {"logprobs": True, "top_logprobs": 2, "stop": ["e"]}),
        (
            Api.CHAT_COMPLETIONS,
            QUESTION | seeded | {"logprobs": True, "return_tokens_as_token_ids": True, "n": 2},
        ),
        (Api.COMPLETIONS, seeded | {"prompt": several, "n": 2, "logprobs": 20, "ignore_eos": True}),
        (Api.COMPLETIONS, {"prompt": "A", "logprobs": 0, "max_tokens": 60, "temperature": 0}),
        (Api.COMPLETIONS, {"prompt": several, "logprobs": 3, "echo": True, "temperature": 0}),
    ]
    for api, body in variants:
        fast_path = ENDPOINTS[api].fast_path
        assert fast_path is not None
        answers: list[list[Any]] = []
        for fast_path.is_enabled in (False, True):
            parts: list[Any] = []
            for stream in (False, True):
                envelope = make_envelope(
                    {"max_tokens": 40} | body, api=api, stream=stream, max_output_tokens=80
                )
                answer = await ask(engine, envelope)
                assert answer.result.outcome is Outcome.COMPLETED, (body, answer.result)
                events = answer.events if stream else []
                texts = [answer.text(index) for index in range(4)]
                parts.append((_logprobs_of(events), texts))
                if not stream:
                    assert answer.result.body is not None
                    whole = re.sub(rb'"created":\d+', b'"created":0', answer.result.body)
                    parts.append(whole.replace(envelope.request_id.encode(), b"id"))
            answers.append(parts)
        assert answers[0] == answers[1], body


def _logprobs_of(events: list[dict[str, Any]]) -> dict[int, list[Any]]:
    """Return the log probabilities of each choice, however its stream was cut into events."""
    found: dict[int, list[Any]] = {}
    for choice in (choice for event in events for choice in event["choices"]):
        logprobs = choice.get("logprobs") or {}
        values = logprobs.get("content") or logprobs.get("top_logprobs") or []
        found.setdefault(choice["index"], []).extend(values)
    return found


async def an_echo_without_generation_leaves_the_engine_serving(
    engine: Engine, description: EngineDescription
) -> None:
    body = {"prompt": "A penstock is", "max_tokens": 0, "echo": True}
    for bound in (0, 1):
        for stream in (True, False):
            echo = make_envelope(body, api=Api.COMPLETIONS, stream=stream, max_output_tokens=bound)
            answer = await ask(engine, echo)
            assert answer.result.outcome is Outcome.COMPLETED, answer.result
            text = answer.text() if stream else answer.body["choices"][0]["text"]
            assert text == "A penstock is"
    assert (await ask(engine, make_envelope(QUESTION))).result.outcome is Outcome.COMPLETED


async def the_echo_of_a_prompt_has_only_so_many_log_probabilities(
    engine: Engine, description: EngineDescription
) -> None:
    echoed = {"prompt": [5] * 800, "max_tokens": 1, "echo": True, "temperature": 1}
    for fields, is_served in (({"logprobs": 5}, True), ({"logprobs": 5, "n": 2}, False)):
        for stream in (True, False):
            envelope = make_envelope(echoed | fields, api=Api.COMPLETIONS, stream=stream)
            result = (await ask(engine, envelope)).result
            assert (result.outcome is Outcome.COMPLETED) is is_served, result
            if not is_served:
                assert result.outcome is Outcome.REFUSED
                assert result.error is not None
                assert (result.error.status, result.error.code) == (400, "answer_too_large")
                assert result.usage.completion_tokens == 0


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


async def a_wave_of_one_tenant_is_not_rendered_before_anothers_prompt(
    engine: Engine, description: EngineDescription
) -> None:
    """Of requests that come together; half of the wave is a wide margin."""
    order = list[str]()  # of the first outputs

    async def ask_as(tenant_id: str) -> None:
        envelope = make_envelope(QUESTION, tenant_id=tenant_id, max_output_tokens=1)
        outputs = engine.generate(envelope)
        await anext(outputs)
        order.append(tenant_id)
        async for _ in outputs:
            pass

    wave = [ask_as("tenant-acme") for _ in range(WAVE)]
    await asyncio.gather(*wave, ask_as("tenant-globex"))
    assert len(order) == WAVE + 1
    assert order.index("tenant-globex") < WAVE / 2, order.index("tenant-globex")


async def an_abort_after_the_first_of_two_choices_has_ended_is_a_cancellation(
    engine: Engine, description: EngineDescription
) -> None:
    """Choices of one prompt end where their seeds have them end, elsewhere on each kind of
    device."""
    asked = QUESTION | {"n": 2, "temperature": 1.5, "min_tokens": 8}
    for seed in range(MOST_SEEDS):
        answer = await ask(engine, make_envelope(asked | {"seed": seed}, max_output_tokens=400))
        if 3 * len(answer.text(0)) < len(answer.text(1)):
            break
    else:
        raise AssertionError("with no seed does the second choice go on for long")
    for stream in (True, False, False):
        for _ in range(10):  # the steps between may come in one go, and not be seen
            envelope = make_envelope(asked | {"seed": seed}, stream=stream, max_output_tokens=400)
            asking = asyncio.create_task(ask(engine, envelope))
            for running in (2, 1):
                await as_soon_as(lambda: asking.done() or engine.load().running == running)  # noqa: B023
            if not asking.done():
                break
        await engine.abort(envelope.request_id)
        answer = await asking
        assert answer.result.outcome is Outcome.CANCELLED
        assert answer.result.body is None


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


async def a_cancelled_task_answers_no_client(
    engine: Engine, description: EngineDescription
) -> None:
    """vLLM's serving objects take a cancellation for a client that has left, and say so."""
    asked = {"ignore_eos": True, "max_tokens": 1000}
    for api, fields in (
        (Api.CHAT_COMPLETIONS, QUESTION),
        (Api.COMPLETIONS, {"prompt": "Water", "temperature": 0}),
    ):
        envelope = make_envelope(fields | asked, api=api, stream=False, max_output_tokens=1000)
        answer, before = Answer(), engine.load().generated_tokens
        asking = asyncio.create_task(gather(engine.generate(envelope), answer))
        await as_soon_as(lambda: engine.load().generated_tokens - before >= 4)  # noqa: B023
        asking.cancel()
        await asyncio.wait([asking])
        assert [each.outcome for each in answer.results] in ([], [Outcome.CANCELLED])
        await eventually(lambda: not engine.load().held)


VLLM_CLAUSES: list[Clause] = [
    log_probabilities_in_pieces_are_what_vllms_own_path_gives,
    an_echo_without_generation_leaves_the_engine_serving,
    the_echo_of_a_prompt_has_only_so_many_log_probabilities,
    a_bad_grammar_is_refused_before_the_engine,
    what_would_harm_the_engine_is_refused,
    no_prompt_is_refused_by_its_bytes_that_its_tokens_would_let_through,
    an_abort_ends_a_request_whose_structure_is_being_tried,
    a_grammar_shapes_the_answer,
    a_prefix_is_cached_for_the_same_salt_only,
    the_load_tells_what_the_engine_has_no_room_for,
    a_wave_of_one_tenant_is_not_rendered_before_anothers_prompt,
    an_abort_after_the_first_of_two_choices_has_ended_is_a_cancellation,
    more_than_the_backstop_is_refused_as_overload,
    logprobs_are_vllms_own,
    a_cancelled_task_answers_no_client,
    a_character_of_several_tokens_may_be_cut_anywhere,
]
