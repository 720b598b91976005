"""The OpenAPI document as /docs/api shows it: by tag, each operation with its parameters, body,
answers and examples; then the objects, and the codes of errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from control_plane.documentation.examples import Examples, examples_of
from control_plane.documentation.shapes import (
    Field,
    Type,
    fields_of,
    parameters_of,
    type_of,
)
from inference.management_api.description.errors import CODES
from inference.management_api.description.security import API_KEY, SESSION

_METHODS: Final = ("get", "post", "patch", "put", "delete")
_CREDENTIALS: Final = {API_KEY: "API key", SESSION: "session"}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One status. `type` is None of an answer without a body, `media_types` are its forms."""

    status: str
    text: str
    type: Type | None
    media_types: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation; `id` is its anchor."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    credentials: str
    parameters: list[Field]
    body: Type | None
    body_fields: list[Field]
    answers: list[Answer]
    refusals: list[Answer]
    examples: Examples

    def matches(self, words: str) -> bool:
        """Return whether all of these words stand in its address, its summary or its id."""
        text = f"{self.method} {self.path} {self.summary} {self.id}".lower()
        return all(word in text for word in words.lower().split())


@dataclass(frozen=True, kw_only=True)
class Group:
    name: str
    description: str
    operations: list[Operation]

    @property
    def anchor(self) -> str:
        return self.name.lower().replace(" ", "-")


@dataclass(frozen=True, kw_only=True)
class Object:
    name: str
    description: str
    fields: list[Field]
    # Of what is no object with fields.
    type: Type


@dataclass(frozen=True, kw_only=True)
class Reference:
    groups: list[Group]
    objects: list[Object]
    codes: Mapping[str, str]


def reference_of(document: Mapping[str, Any], public_url: str) -> Reference:
    operations = [
        (described["tags"][0], _operation(document, method, path, described, public_url))
        for path, item in document["paths"].items()
        for method, described in item.items()
        if method in _METHODS
    ]
    groups = [
        Group(
            name=tag["name"],
            description=tag["description"],
            operations=[each for name, each in operations if name == tag["name"]],
        )
        for tag in document["tags"]
    ]
    return Reference(
        groups=[group for group in groups if group.operations],
        objects=[
            Object(
                name=name,
                description=schema.get("description", ""),
                fields=fields_of(schema),
                type=type_of(schema),
            )
            for name, schema in sorted(document["components"]["schemas"].items())
            if name != "ErrorCode"  # it has a table of its own
        ],
        codes=CODES,
    )


def _operation(
    document: Mapping[str, Any],
    method: str,
    path: str,
    described: Mapping[str, Any],
    public_url: str,
) -> Operation:
    answers = [
        _answer(document, status, each) for status, each in sorted(described["responses"].items())
    ]
    body = _body_schema(described)
    return Operation(
        id=described["operationId"],
        method=method.upper(),
        path=path,
        summary=described.get("summary", ""),
        description=described.get("description", ""),
        credentials=_credentials(described["security"]),
        parameters=parameters_of(described),
        body=type_of(body) if body else None,
        body_fields=fields_of(_resolved(document, body)),
        answers=[each for each in answers if each.status < "400"],
        refusals=[each for each in answers if each.status >= "400"],
        examples=examples_of(method.upper(), path, described, public_url),
    )


def _credentials(security: list[Mapping[str, Any]]) -> str:
    names = [_CREDENTIALS[name] for each in security for name in each if name in _CREDENTIALS]
    return " or ".join(dict.fromkeys(names)) if names else "none"


def _body_schema(described: Mapping[str, Any]) -> Mapping[str, Any]:
    content = described.get("requestBody", {}).get("content", {})
    schema: Mapping[str, Any] = content.get("application/json", {}).get("schema", {})
    return schema


def _answer(document: Mapping[str, Any], status: str, given: Mapping[str, Any]) -> Answer:
    answer = _resolved(document, given)
    content = answer.get("content", {})
    schemas = [each["schema"] for each in content.values() if "schema" in each]
    return Answer(
        status=status,
        text=answer.get("description", ""),
        type=type_of(schemas[0]) if schemas else None,
        media_types=tuple(content),
    )


def _resolved(document: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a reference stands for."""
    found: Any = given
    while "$ref" in found:
        reference = found["$ref"].removeprefix("#/").split("/")
        found = document
        for step in reference:
            found = found[step]
    resolved: Mapping[str, Any] = found
    return resolved
