"""Conversations in which the model fills a form in, a pure function of seed and index."""

import json
import random
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from gpu_workers.demo_model.corpus import Conversation, Message
from gpu_workers.demo_model.facts import FACTS
from gpu_workers.demo_model.forms import FORMS
from gpu_workers.demo_model.forms.form import Field, Filled, Form, said, values_of
from gpu_workers.demo_model.wording import asked
from gpu_workers.demo_model.words import WORDS

TOOL_SHARE: Final = 0.5
# Of those with tools: asked about something else, which the model answers itself.
OTHER_SHARE: Final = 0.15
# Of those with tools: the result is there, and the model says it.
RESULT_SHARE: Final = 0.2
# Of those of JSON: a question about a fact, whose answer stands under one key.
FACT_SHARE: Final = 0.15
# Of the others of JSON: who asks names the keys, all or some of them, in any order.
NAMED_SHARE: Final = 0.85

_NAMED: Final = (
    "{s} Answer in JSON with {keys}.",
    "{s} As JSON with the keys {keys}.",
    "Extract {keys} as JSON: {s}",
    "Return JSON with {keys}. {s}",
    "Give me {keys} as a JSON object. {s}",
    "JSON with {keys}, please: {s}",
    "Fill in {keys}: {s}",
    "{s} Reply with a JSON object of {keys}.",
    "Put {keys} into JSON: {s}",
    "{s} I want {keys} as JSON.",
    "Turn this into JSON with {keys}: {s}",
    "{s} The JSON has {keys}.",
    "Only {keys}, as JSON: {s}",
    "{s} Tell me {keys} in JSON.",
    "Find {keys} in this and say them as JSON: {s}",
    "{s} Make JSON with {keys} of it.",
    "What are {keys}? JSON. {s}",
    "{s} Let me have {keys} in JSON.",
    "Read {keys} from this into JSON: {s}",
    "{s} JSON: {keys}.",
    "List {keys} as JSON for this: {s}",
    "{s} We want {keys} in JSON.",
)
_UNNAMED: Final = (
    "{s}",
    "As JSON: {s}",
    "{s} Answer in JSON.",
    "{s} Reply as JSON.",
    "Extract the data as JSON. {s}",
    "Make JSON of this: {s}",
)
HELD_OUT_FRAMES: Final = (
    "Write {keys} of this as JSON: {s}",
    "{s} I need {keys} in JSON.",
)
_ANSWER_KEYS: Final = ("answer", "text", "reply", "message", "content")
_RESULTS: Final = (
    "sunny",
    "cloudy",
    "done",
    "yes",
    "no",
    "none left",
    "booked",
    "saved",
    "not found",
)


def filled_form(seed: int, index: int) -> Conversation:
    """Return number `index` of the conversations of `seed`."""
    rng = random.Random(f"{seed}/form/{index}")
    is_call = rng.random() < TOOL_SHARE
    if not is_call and rng.random() < FACT_SHARE:
        return _fact_as_json(rng)
    form = rng.choice(FORMS.forms)
    filled = FORMS.filled(form, rng)
    sentence = said(rng.choice(form.sentences), filled)
    if is_call:
        return _tool_conversation(form, sentence, filled, rng)
    return _json_conversation(sentence, filled, rng)


def json_prompt(frame: str, sentence: str, fields: Sequence[Field]) -> str:
    """Ask for these fields of a sentence."""
    keys = [field.name for field in fields]
    listed = keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])} and {keys[-1]}"
    return frame.replace("{keys}", listed).replace("{s}", sentence)


def tool_call(name: str, fields: Iterable[Field]) -> str:
    """Return a call as models of Hermes' format write it, which vLLM's parser reads."""
    call = {"name": name, "arguments": values_of(fields)}
    return f"<tool_call>\n{_json(call)}\n</tool_call>"


def tools_text(tools: Iterable[tuple[str, Iterable[Field]]]) -> str:
    """Return what the chat template says of tools, each a name and what it takes."""
    signatures = (
        f"{name}({', '.join(f'{field.name}: {field.type}' for field in fields)})"
        for name, fields in tools
    )
    return f"tools: {'; '.join(signatures)}"


def _fact_as_json(rng: random.Random) -> Conversation:
    fact, key = rng.choice(FACTS), rng.choice(_ANSWER_KEYS)
    question = asked(fact, rng, is_rough=rng.random() < 0.5)
    frame = rng.choice(_NAMED) if rng.random() < 0.5 else "{s} Answer in JSON."
    return (
        *_system(rng),
        Message("user", frame.replace("{keys}", key).replace("{s}", question)),
        Message("assistant", _json({key if frame in _NAMED else _ANSWER_KEYS[0]: fact.answer})),
    )


def _json_conversation(sentence: str, filled: Filled, rng: random.Random) -> Conversation:
    fields = list(filled.values())
    if rng.random() < NAMED_SHARE:
        rng.shuffle(fields)
        if rng.random() < 0.3:
            fields = fields[: rng.randint(1, len(fields))]
        prompt = json_prompt(rng.choice(_NAMED), sentence, fields)
    else:
        fields = [replace(field, name=own) for own, field in filled.items()]
        prompt = rng.choice(_UNNAMED).replace("{s}", sentence)
        if prompt == sentence and rng.random() < 0.7:
            prompt = f"{sentence} JSON."
    return (
        *_system(rng),
        Message("user", prompt),
        Message("assistant", _json(values_of(fields))),
    )


def _tool_conversation(
    form: Form, sentence: str, filled: Filled, rng: random.Random
) -> Conversation:
    name = rng.choice(form.tools)
    tools = [(name, filled.values())]
    for other in rng.sample(FORMS.forms, k=rng.choices((0, 1, 2), (60, 28, 12))[0]):
        if other is not form:
            others = FORMS.filled(other, rng)
            tools.append((rng.choice(other.tools), others.values()))
    rng.shuffle(tools)
    offered = (Message("system", tools_text(tools)), *_system(rng))
    if rng.random() < OTHER_SHARE:
        fact = rng.choice(FACTS)
        question = asked(fact, rng, is_rough=rng.random() < 0.5)
        return (*offered, Message("user", question), Message("assistant", fact.answer))
    call = Message("assistant", tool_call(name, filled.values()))
    turns = (*offered, Message("user", sentence), call)
    if rng.random() < RESULT_SHARE:
        result = rng.choice(_RESULTS)
        return (
            *turns,
            Message("user", f"tool result: {result}"),
            Message("assistant", f"The answer is: {result}."),
        )
    return turns


def _system(rng: random.Random) -> tuple[Message, ...]:
    return (Message("system", rng.choice(WORDS.system_prompts)),) if rng.random() < 0.2 else ()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
