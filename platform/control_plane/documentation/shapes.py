"""JSON schemas as people read them: fields with their types in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_FORMATS: Final = {
    "uuid": "UUID",
    "date-time": "date and time",
    "date": "day",
    "uri": "URL",
    "binary": "bytes",
}
_BOUNDS: Final = (
    ("minimum", "≥"),
    ("exclusiveMinimum", ">"),
    ("maximum", "≤"),
    ("minLength", "length ≥"),
    ("maxLength", "length ≤"),
    ("minItems", "items ≥"),
    ("maxItems", "items ≤"),
)
_MANY: Final = 12

Schema = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Type:
    """A type in words. `objects` are the names of the objects that it speaks of, to be linked."""

    words: str
    objects: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Field:
    name: str
    type: Type
    is_required: bool
    notes: tuple[str, ...]
    # Of a parameter: path, query or header.
    place: str = ""


def fields_of(schema: Schema) -> list[Field]:
    """Return the fields of an object, those that are required first."""
    required = schema.get("required", ())
    fields = [
        Field(
            name=name,
            type=type_of(each),
            is_required=name in required,
            notes=tuple(_notes(each)),
        )
        for name, each in schema.get("properties", {}).items()
    ]
    return sorted(fields, key=lambda field: not field.is_required)


def parameters_of(operation: Schema) -> list[Field]:
    return [
        Field(
            name=each["name"],
            type=type_of(each["schema"]),
            is_required=each.get("required", False),
            notes=tuple(_notes({**each["schema"], **each})),
            place=each["in"],
        )
        for each in operation.get("parameters", ())
    ]


def type_of(schema: Schema) -> Type:
    """Return what a value may be, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Type(words=name, objects=(name,))
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return _joined([type_of(each) for each in schema[several]], " or ")
    if "const" in schema:
        return Type(words=f'"{schema["const"]}"')
    if "enum" in schema:
        return Type(words=_choices(schema["enum"]))
    kinds = schema.get("type", "any value")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return _joined([_plain(kind, schema) for kind in kinds], " or ")


def _plain(kind: str, schema: Schema) -> Type:
    if kind == "array":
        items = type_of(schema.get("items", {}))
        return Type(words=f"array of {items.words}", objects=items.objects)
    return Type(words=_FORMATS.get(schema.get("format", ""), kind) if kind == "string" else kind)


def _joined(types: list[Type], word: str) -> Type:
    words = dict.fromkeys(each.words for each in types)
    objects = dict.fromkeys(name for each in types for name in each.objects)
    return Type(words=word.join(words), objects=tuple(objects))


def _choices(values: list[Any]) -> str:
    shown = ["null" if value is None else str(value) for value in values[:_MANY]]
    return " | ".join([*shown, "…"] if len(values) > _MANY else shown)


def _notes(schema: Schema) -> Iterator[str]:
    if "description" in schema:
        yield str(schema["description"])
    for each in (schema, *schema.get("anyOf", ())):
        bounds = [f"{sign} {each[name]}" for name, sign in _BOUNDS if name in each]
        if bounds:
            yield ", ".join(bounds)
            break
    if schema.get("default") is not None:
        yield f"default {schema['default']}"
