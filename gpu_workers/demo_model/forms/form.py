"""One form: its fields, what is said of them, and the values that a sentence gives them."""

import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from gpu_workers.demo_model.data_file import DataFileError, Line, Lines, read

NUMBERS: Final = {
    "quantity": range(2, 60),
    "hour": range(7, 21),
    "age": range(18, 90),
    "guests": range(2, 21),
    "stars": range(1, 6),
}
FLAGS: Final = {"urgent": {True: "urgent", False: "not urgent"}}
# Of the fields: called by another name than the form's, in training and in the evaluation.
ALIAS_SHARE: Final = 0.35

REMEDY: Final = (
    "A form has key, tools, fields, sentences (at least 7) and held_out (at least 2), each with "
    "all fields. Correct it as forms/__init__.py describes."
)
Value = str | int | bool
_SLOT: Final = re.compile(r"\{(\w+)\}")


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As it stands in forms.toml."""

    key: Line
    tools: Lines
    fields: Lines
    sentences: Annotated[tuple[Line, ...], msgspec.Meta(min_length=7)]
    held_out: Annotated[tuple[Line, ...], msgspec.Meta(min_length=2)]


class Field(msgspec.Struct, frozen=True):
    """A field of a form as somebody asks for it."""

    name: str
    type: str  # in JSON Schema
    value: Value


Schema = dict[str, Any]
Filled = dict[str, Field]
"""By the form's own names of its fields, in its order."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: dict[Line, Lines]
    aliases: dict[Line, Lines]
    form: tuple[Form, ...]


class Forms(msgspec.Struct, frozen=True):
    """All forms, the words that stand for their fields, and the fields' other names."""

    words: dict[str, tuple[str, ...]]
    aliases: dict[str, tuple[str, ...]]
    forms: tuple[Form, ...]

    def filled(self, form: Form, rng: random.Random, *, alias_share: float = ALIAS_SHARE) -> Filled:
        """Draw a value for each field, and another name for such a share of them."""
        filled: Filled = {}
        for field in form.fields:
            name = rng.choice(self.aliases[field]) if rng.random() < alias_share else field
            if any(other.name == name for other in filled.values()):
                name = field
            filled[field] = Field(name=name, type=type_of(field), value=self._value(field, rng))
        return filled

    def _value(self, name: str, rng: random.Random) -> Value:
        if name in NUMBERS:
            return rng.choice(NUMBERS[name])
        if name in FLAGS:
            return rng.random() < 0.5
        return rng.choice(self.words[name])


def said(sentence: str, filled: Filled) -> str:
    """Return a sentence with its values; its first letter is a capital one."""

    def word(match: re.Match[str]) -> str:
        field = match.group(1)
        value = filled[field].value
        return FLAGS[field][value] if isinstance(value, bool) else str(value)

    text = _SLOT.sub(word, sentence)
    return text[:1].upper() + text[1:]


def values_of(fields: Iterable[Field]) -> dict[str, Value]:
    """Return the JSON object of these fields."""
    return {field.name: field.value for field in fields}


def schema_of(fields: Iterable[Field]) -> Schema:
    """Return the JSON schema of an object of these fields and no others."""
    types = {field.name: {"type": field.type} for field in fields}
    return {
        "type": "object",
        "properties": types,
        "required": list(types),
        "additionalProperties": False,
    }


def type_of(field: str) -> str:
    """Return the type of a form's field in JSON Schema."""
    if field in NUMBERS:
        return "integer"
    return "boolean" if field in FLAGS else "string"


def read_forms(file: Path) -> Forms:
    """Return the forms of a file. Raises DataFileError, which names the form."""
    found = read(file, _File, remedy=REMEDY)
    known = {*found.words, *NUMBERS, *FLAGS} & set(found.aliases)
    for form in found.form:
        place = f"form '{form.key}'"
        if not known.issuperset(form.fields):
            raise DataFileError(
                file, "a field has no words or no aliases", remedy=REMEDY, place=place, key="fields"
            )
        for sentence in (*form.sentences, *form.held_out):
            if sorted(set(_SLOT.findall(sentence))) != sorted(form.fields):
                reason = f"this sentence has not all fields, or others: {sentence!r}"
                raise DataFileError(file, reason, remedy=REMEDY, place=place)
    return Forms(words=found.words, aliases=found.aliases, forms=found.form)
