"""What holds for vLLM where answers follow structures: what would hurt is refused, and what people
really use is served.

Plain functions and asserts: this also runs in the engine's environment, which has no pytest.
"""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from gpu_workers.engine import EmitText, Engine, EngineDescription, Result
from gpu_workers.protocol.messages import Api, Outcome
from gpu_workers.vllm.structures.trials import MOST_OWN_SECONDS
from tests.support.polling import eventually
from tests.support.processes.children import children_of
from tests.support.workers.asking import ENDLESS, QUESTION, Answer, Clause, ask
from tests.support.workers.envelopes import ACME, make_envelope

# The bar; on a machine whose victims stand still by themselves, that is added.
MOST_GAP_SECONDS: Final = 1.0
TOO_COSTLY: Final = "structure_too_costly"
NOT_TRIED: Final = "structures_unavailable"
# Trials come one after another, and each may take half a minute where others want the CPU too; one
# that got too little of it is asked for again.
TRIALS_SECONDS: Final = 400.0
TIMES_ASKED: Final = 5
WAITING: Final = "structures_waiting"


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    }


def grammar(text: str) -> dict[str, Any]:
    return {"structured_outputs": {"grammar": text}}


def _rules(count: int, rule: str, last: str) -> str:
    """A chain of rules, `{}` the next of each."""
    chain = (f"r{each} ::= {rule.replace('{}', f'r{each + 1}')}" for each in range(count))
    return "\n".join(["root ::= r0", *chain, f"r{count} ::= {last}"])


# What was measured to hurt: seconds a step, gigabytes, or minutes of compiling. Some are refused
# by the gateway already; this is the worker alone.
BOMBS: Final[dict[str, dict[str, Any]]] = {
    "more memory than it may have": grammar("root ::= " + ' ("a" | "b")?' * 12_000),
    "optional parts": grammar("root ::= " + ' ("a" | "b")?' * 1_000),
    "few optional parts": grammar("root ::= " + ' ("a" | "b")?' * 300),
    "repetitions in one another": grammar("root ::= (((" + '"a"' + "){0,50}){0,50}){0,50}"),
    "ambiguous recursion": grammar('root ::= root root root | root root | "a" | ""'),
    "doubling rules": grammar(_rules(30, "{} {}", '"b" | ""')),
    "rules in rules": grammar(_rules(1_000, '{} | {} "a"', '"b"')),
    "an optional pattern": {"structured_outputs": {"regex": "(a|b)?" * 1_000}},
    "bounded repeats in one another": {
        "structured_outputs": {"regex": "((((a{0,50}){0,50}){0,50}){0,50})"}
    },
    "strings of any length": json_schema(
        {"anyOf": [{"type": "string", "minLength": 5 * each} for each in range(400)]}
    ),
    # What the engine's xgrammar fails at, and one without its cache does not.
    "a long bounded pattern": json_schema({"type": "string", "pattern": "[a-z]{1,1000}"}),
}

_LEAVES: Final[tuple[dict[str, Any], ...]] = (
    {"type": "string"},
    {"type": "integer", "minimum": 0, "maximum": 100},
    {"type": "boolean"},
    {"type": "array", "items": {"type": "string"}},
    {"type": "string", "enum": [f"value {number}" for number in range(8)]},
    {"type": "string", "format": "date-time"},
    {"type": "number"},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
)
_LINE: Final = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 200},
        "amount": {"type": "number"},
        "tax": {"enum": [0, 7, 19]},
    },
    "required": ["text", "amount"],
}


def _object(properties: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False} | fields


def _sections(*, is_required: bool) -> dict[str, Any]:
    """A hundred properties in ten objects."""
    sections = {}
    for number in range(10):
        leaves = {f"field_{number}_{each}": _LEAVES[each % len(_LEAVES)] for each in range(10)}
        sections[f"section_{number}"] = _object(leaves, required=list(leaves) * is_required)
    return _object(sections, required=list(sections) * is_required)


USEFUL: Final[dict[str, dict[str, Any]]] = {
    "a hundred properties": json_schema(_sections(is_required=True)),
    "a hundred optional properties": json_schema(_sections(is_required=False)),
    "two hundred members": json_schema(
        _object({"country": {"enum": [f"Country number {each}" for each in range(200)]}})
    ),
    "an invoice": json_schema(
        _object(
            {
                "number": {"type": "string", "pattern": "^INV-[0-9]{6}$"},
                "date": {"type": "string", "format": "date"},
                "lines": {"type": "array", "minItems": 1, "maxItems": 50, "items": _LINE},
            },
            required=["number", "lines"],
        )
    ),
    "a tree": json_schema(
        {
            "$defs": {
                "node": _object(
                    {
                        "left": {"$ref": "#/$defs/node"},
                        "right": {"$ref": "#/$defs/node"},
                        "value": {"type": "string"},
                    }
                )
            },
            "$ref": "#/$defs/node",
        }
    ),
    "twenty tools": json_schema(
        {
            "anyOf": [
                _object(
                    {
                        "tool": {"const": f"tool_{number}"},
                        "arguments": _object({f"a{each}": {"type": "string"} for each in range(5)}),
                    },
                    required=["tool", "arguments"],
                )
                for number in range(20)
            ]
        }
    ),
    "an e-mail address": {
        "structured_outputs": {"regex": r"[a-zA-Z0-9._%+-]{1,64}@[a-z0-9.-]{1,64}\.[a-z]{2,6}"}
    },
    "a query": grammar(
        'root ::= "SELECT " names " FROM " name (" WHERE " name " = " [0-9]+)? ";"\n'
        'names ::= "*" | name (", " name)*\nname ::= [a-z_] [a-z0-9_]*'
    ),
}


class Victims:
    """Streams of others, and the longest time in which one of them got nothing. They end with the
    clause, also where that fails: the next one counts what the engine generates."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_over = False
        self.longest = 0.0
        self.heard = 0
        self._streams = [asyncio.create_task(self._stream()) for _ in range(3)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        await asyncio.gather(*self._streams)

    async def _stream(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_over:
            envelope, last = make_envelope(ENDLESS, max_output_tokens=1000), [loop.time()]

            def note(*_: object, last: list[float] = last) -> None:
                now = loop.time()
                self.longest, last[0] = max(self.longest, now - last[0]), now
                self.heard += 1

            def begin_texts(_: object, note: EmitText = note) -> EmitText:
                return note

            async for item in self._engine.generate(envelope, begin_texts):
                note(item)
                if self._is_over:
                    await self._engine.abort(envelope.request_id)


async def structures_that_hurt_are_refused_while_others_stream(
    engine: Engine, description: EngineDescription
) -> None:
    """In the time and memory that the runner allows; each is within what vLLM itself takes."""
    async with Victims(engine) as victims:
        await eventually(lambda: victims.heard > 100, 30)
        usual, victims.longest = victims.longest, 0.0
        answers = await _each_by_a_tenant_of_its_own(engine, BOMBS)
        longest = victims.longest
    for name, answer in zip(BOMBS, answers, strict=True):
        assert answer.result.outcome is Outcome.REFUSED, (name, answer.result)
        assert answer.result.error is not None
        assert (answer.result.error.status, answer.result.error.code) == (400, TOO_COSTLY), name
        assert answer.result.usage.completion_tokens == 0
    assert longest < MOST_GAP_SECONDS + usual, (longest, usual)


async def structures_of_everyday_are_followed(
    engine: Engine, description: EngineDescription
) -> None:
    answers = await _each_by_a_tenant_of_its_own(engine, USEFUL)
    for name, answer in zip(USEFUL, answers, strict=True):
        assert answer.result.outcome is Outcome.COMPLETED, (name, answer.result)
        if answer.result.finish_reason == "stop" and "response_format" in USEFUL[name]:
            json.loads(answer.text())


async def a_trial_that_got_no_cpu_says_nothing_of_its_structure(
    engine: Engine, description: EngineDescription
) -> None:
    """Others had it: that is neither the tenant's fault nor to be remembered."""
    fields = grammar(_rules(1_001, '{} | {} "a"', '"b"'))
    envelope = make_envelope(QUESTION | fields, max_output_tokens=20)
    asking = asyncio.create_task(ask(engine, envelope, TRIALS_SECONDS))
    (trial,) = await eventually(_running_trials, 30)
    os.kill(trial, signal.SIGSTOP)
    error = (await asking).result.error
    assert error is not None
    assert (error.status, error.code) == (503, NOT_TRIED)
    known = (await _follow(engine, fields, tokens=20)).result.error
    assert known is not None
    assert (known.status, known.code) == (400, TOO_COSTLY)


def _running_trials() -> list[int]:
    """The forks of this engine's own process that tries structures."""
    return [
        fork
        for child in children_of(os.getpid())
        if b"structures.trial_process" in Path(f"/proc/{child}/cmdline").read_bytes()
        for fork in children_of(child)
    ]


async def who_sends_many_expensive_structures_is_answered_soon_and_holds_up_nobody(
    engine: Engine, description: EngineDescription
) -> None:
    loop, waited = asyncio.get_running_loop(), []

    async def flood(size: int) -> str:
        asked_at = loop.time()
        fields = grammar("root ::= " + ' ("c" | "d")?' * size)
        result = (await _follow(engine, fields)).result
        assert result.outcome is Outcome.REFUSED, result
        assert result.error is not None
        assert result.usage.completion_tokens == 0
        if result.error.code == WAITING:
            assert result.error.status == 429
            assert result.error.retry_after_seconds is not None
            waited.append(loop.time() - asked_at)
        return str(result.error.code)

    flooding = [asyncio.create_task(flood(300 + each)) for each in range(10)]
    unknown = json_schema(_object({"depth_of_the_penstock": {"type": "integer"}}))
    victim = await _follow(engine, unknown, tenant_id="tenant-globex")
    assert victim.result.outcome is Outcome.COMPLETED, victim.result
    assert set(await asyncio.gather(*flooding)) == {TOO_COSTLY, WAITING}
    assert max(waited) < MOST_OWN_SECONDS + MOST_GAP_SECONDS, waited
    assert await flood(300) == TOO_COSTLY


async def what_slows_the_engine_behind_a_trial_is_ended_and_others_go_on(
    engine: Engine, description: EngineDescription
) -> None:
    """An ambiguity behind a text that is longer than any trial: each step takes longer than the
    last, and the request ends before that is a second."""
    digits = "".join(Random(2).choices("0123456789", k=600))
    fields = grammar(f'root ::= "{digits}" s\ns ::= s s s | s s | "a" | "b" | ""')
    async with Victims(engine) as victims:
        await eventually(lambda: victims.heard > 100, 30)
        usual, victims.longest = victims.longest, 0.0
        answer = await _follow(engine, fields | {"ignore_eos": True}, tokens=1_900)
        longest = victims.longest
    assert answer.result.outcome is Outcome.FAILED, answer.result
    assert answer.result.error is not None
    assert (answer.result.error.status, answer.result.error.code) == (400, TOO_COSTLY)
    assert answer.result.usage.completion_tokens > 100  # on record, as they were generated
    assert answer.text().startswith(digits)
    assert longest < MOST_GAP_SECONDS + usual, (longest, usual)


async def an_answer_with_no_token_left_for_it_is_told_to_the_client(
    engine: Engine, description: EngineDescription
) -> None:
    ids, (a, b) = await _spelled(engine, "water"), [await _spelled(engine, text) for text in "ab"]
    json_object: dict[str, Any] = {"response_format": {"type": "json_object"}}
    impossible: tuple[dict[str, Any], ...] = (
        json_object | {"allowed_token_ids": ids},
        json_object | {"allowed_token_ids": ids, "n": 2, "temperature": 1},
        json_object | {"allowed_token_ids": ids, "logprobs": True, "top_logprobs": 2},
        {"structured_outputs": {"regex": "[ab]{3}"}, "bad_words": ["a", "b"]},
        {"structured_outputs": {"regex": "[ab]"}, "stop_token_ids": [*a, *b]},
        json_schema(
            {"$defs": {"a": {"$ref": "#"}}, "anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}
        ),
        json_schema({"$ref": "#"}),
    )
    for fields in impossible:
        for stream in (True, False):
            envelope = make_envelope(QUESTION | fields, stream=stream, max_output_tokens=40)
            result = (await ask(engine, envelope)).result
            assert result.outcome is Outcome.FAILED, (fields, result)
            assert result.error is not None
            assert (result.error.status, result.error.code) == (400, "structure_impossible")
            assert result.body is None
            assert result.usage.completion_tokens < 8  # on record, as they were generated


async def choices_beside_one_that_cannot_go_on_are_on_record(
    engine: Engine, description: EngineDescription
) -> None:
    """The answer ends with the first error; what the others have come to by then was generated."""
    choices, tokens = 8, 400
    spelled = [token_id for text in "ab" for token_id in await _spelled(engine, text)]
    structure = {"structured_outputs": {"regex": f"ac|b{{{tokens}}}"}, "allowed_token_ids": spelled}
    fields = QUESTION | structure | {"n": choices, "temperature": 2}
    for seed in range(3):
        results = []
        envelope = make_envelope(fields | {"seed": seed}, max_output_tokens=tokens)
        async for item in engine.generate(envelope):
            # A loop that has much to do: outputs come before they are taken.
            time.sleep(0.05)  # noqa: ASYNC251 - nothing else is to run meanwhile
            if isinstance(item, Result):
                results.append(item)
        (result,) = results
        assert result.error is not None and result.error.code == "structure_impossible", result
        assert choices <= result.usage.completion_tokens < choices * tokens


async def _spelled(engine: Engine, text: str) -> list[int]:
    fields = {"prompt": text, "max_tokens": 1, "return_token_ids": True}
    answer = await ask(engine, make_envelope(fields, api=Api.COMPLETIONS, stream=False))
    token_ids: list[int] = answer.body["choices"][0]["prompt_token_ids"]
    return token_ids


async def _each_by_a_tenant_of_its_own(
    engine: Engine, structures: dict[str, dict[str, Any]]
) -> list[Answer]:
    """So that none of them is refused for the time that the others take."""
    return await asyncio.gather(
        *(
            _follow(engine, fields, tenant_id=f"tenant-{number}")
            for number, fields in enumerate(structures.values())
        )
    )


async def _follow(
    engine: Engine, fields: dict[str, Any], tokens: int = 200, tenant_id: str = ACME
) -> Answer:
    envelope = make_envelope(QUESTION | fields, max_output_tokens=tokens, tenant_id=tenant_id)
    for _ in range(TIMES_ASKED):
        answer = await ask(engine, envelope, TRIALS_SECONDS)
        error = answer.result.error
        if error is None or error.code != NOT_TRIED:
            break
    return answer


STRUCTURE_CLAUSES: list[Clause] = [
    structures_that_hurt_are_refused_while_others_stream,
    structures_of_everyday_are_followed,
    a_trial_that_got_no_cpu_says_nothing_of_its_structure,
    who_sends_many_expensive_structures_is_answered_soon_and_holds_up_nobody,
    what_slows_the_engine_behind_a_trial_is_ended_and_others_go_on,
    an_answer_with_no_token_left_for_it_is_told_to_the_client,
    choices_beside_one_that_cannot_go_on_are_on_record,
]
