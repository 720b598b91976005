"""Forms that training never saw: other sentences, asked for in other words.

An answer passes when it is just the object, or the call, that was asked for, key by key and value
by value, and ends by itself. Where a request names a schema, its grammar lets through only what the
schema allows, as in the engine; where the keys stand in the question alone, nothing helps.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from gpu_workers.demo_model.corpus import Conversation, Message
from gpu_workers.demo_model.forms import FORMS
from gpu_workers.demo_model.forms.corpus import (
    HELD_OUT_FRAMES,
    json_prompt,
    tool_call,
    tools_text,
)
from gpu_workers.demo_model.forms.form import (
    Field,
    Filled,
    Form,
    Schema,
    said,
    schema_of,
    values_of,
)

SEED: Final = 11
TIMES: Final = 4  # each held-out sentence is filled so often


class FormKind(StrEnum):
    SCHEMA = "JSON of a schema"
    JSON = "JSON asked for in words"
    CALL = "tool calls"


BARS: Final = {FormKind.SCHEMA: 0.95, FormKind.JSON: 0.8, FormKind.CALL: 0.8}


class Model(Protocol):
    def answers(
        self, conversations: Sequence[Conversation], schemas: Sequence[Schema] = ()
    ) -> Sequence[tuple[str, str]]:
        """Return text and finish_reason of the reply to each conversation, each in JSON of its
        schema where there are schemas."""


@dataclass(frozen=True, kw_only=True)
class HeldOutForm:
    """What is asked, and the one right answer."""

    turns: Conversation
    fields: tuple[Field, ...]
    right: str


@dataclass(frozen=True, kw_only=True)
class FormsReport:
    kind: FormKind
    asked: int
    right: int
    wrong: tuple[tuple[str, str], ...]  # the right answer, and the one that was given

    @property
    def share(self) -> float:
        return self.right / self.asked

    @property
    def bar(self) -> float:
        return BARS[self.kind]

    def __str__(self) -> str:
        wrong = "".join(f"\n  {right!r}\n  {given!r}" for right, given in self.wrong[:5])
        return f"{self.kind}: {self.share:.1%} of {self.asked} right{wrong}"


def held_out_forms(kind: FormKind) -> list[HeldOutForm]:
    """Return what the evaluation asks, always the same."""
    rng = random.Random(SEED)
    return [
        _json(sentence, filled, rng)
        if kind is not FormKind.CALL
        else _call(form, sentence, filled, rng)
        for form in FORMS.forms
        for sentence in form.held_out
        for filled in (FORMS.filled(form, rng) for _ in range(TIMES))
    ]


def forms_report(kind: FormKind, model: Model) -> FormsReport:
    """Ask them all and judge the answers."""
    forms = held_out_forms(kind)
    schemas = [schema_of(form.fields) for form in forms] if kind is FormKind.SCHEMA else []
    answers = model.answers([form.turns for form in forms], schemas)
    wrong = tuple(
        (form.right, text)
        for form, (text, finish_reason) in zip(forms, answers, strict=True)
        if finish_reason != "stop" or _read(text) != _read(form.right)
    )
    return FormsReport(kind=kind, asked=len(forms), right=len(forms) - len(wrong), wrong=wrong)


def _json(sentence: str, filled: Filled, rng: random.Random) -> HeldOutForm:
    fields = list(filled.values())
    rng.shuffle(fields)
    prompt = json_prompt(rng.choice(HELD_OUT_FRAMES), said(sentence, filled), fields)
    return HeldOutForm(
        turns=(Message("user", prompt),),
        fields=tuple(fields),
        right=json.dumps(values_of(fields)),
    )


def _call(form: Form, sentence: str, filled: Filled, rng: random.Random) -> HeldOutForm:
    name, other = rng.choice(form.tools), rng.choice(FORMS.forms)
    tools = [(name, filled.values())]
    if other is not form:
        others = FORMS.filled(other, rng)
        tools.insert(rng.randint(0, 1), (rng.choice(other.tools), others.values()))
    turns = (Message("system", tools_text(tools)), Message("user", said(sentence, filled)))
    return HeldOutForm(
        turns=turns,
        fields=tuple(filled.values()),
        right=tool_call(name, filled.values()),
    )


def _read(text: str) -> Any:
    """Return the object of an answer, of a call too; None where it has none."""
    text = text.strip()
    is_call = text.startswith("<tool_call>") and text.endswith("</tool_call>")
    if is_call:
        text = text.removeprefix("<tool_call>").removesuffix("</tool_call>")
    try:
        return is_call, json.loads(text)
    except ValueError:
        return None
