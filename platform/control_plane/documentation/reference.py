"""The OpenAPI document as /docs/api shows it: by tag, each operation with its parameters, body,
answers and examples, and the objects of that tag alone; the objects of several; the codes of
errors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from django.conf import settings

from control_plane.documentation.examples import Example, examples_of
from control_plane.documentation.shapes import (
    Field,
    Type,
    fields_of,
    parameters_of,
    type_of,
)
from control_plane.management_api.openapi.document import document
from control_plane.management_api.openapi.errors import CODES
from control_plane.management_api.openapi.security import API_KEY, SESSION

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
    examples: list[Example]

    def matches(self, words: str) -> bool:
        """Return whether all of these words stand in its address, its sentences, its id or the
        names of what it takes."""
        names = " ".join(field.name for field in (*self.parameters, *self.body_fields))
        text = f"{self.method} {self.path} {self.summary} {self.description} {self.id} {names}"
        return all(word in text.lower() for word in words.lower().split())

    def objects(self) -> set[str]:
        """Return the names of the objects that it takes and answers."""
        bodies = [self.body, *(each.type for each in (*self.answers, *self.refusals))]
        types = [each for each in bodies if each is not None]
        return _names((*self.parameters, *self.body_fields), types)


@dataclass(frozen=True, kw_only=True)
class Object:
    name: str
    description: str
    fields: list[Field]
    # Of what is no object with fields.
    type: Type

    def objects(self) -> set[str]:
        """Return the names of the objects in it."""
        return _names(self.fields, [self.type])


@dataclass(frozen=True, kw_only=True)
class Group:
    """A page: `slug` is the end of its address, `objects` those of no other group."""

    name: str
    description: str
    operations: list[Operation]
    objects: list[Object]

    @property
    def slug(self) -> str:
        return self.name.lower().replace(" ", "-")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The last group has no operation: the objects of several others stand there."""

    groups: list[Group]
    codes: Mapping[str, str]

    def group(self, slug: str) -> Group | None:
        return next((group for group in self.groups if group.slug == slug), None)

    def group_of(self, name: str) -> Group | None:
        """Return the group on whose page an object stands; None of the codes of errors."""
        return next(
            (group for group in self.groups for each in group.objects if each.name == name), None
        )


@cache
def published() -> Reference:
    """Return what this deployment's pages show."""
    return reference_of(document(), settings.PENSTOCK_PUBLIC_URL)


def reference_of(api: Mapping[str, Any], public_url: str) -> Reference:
    operations = [
        (described["tags"][0], _operation(api, method, path, described, public_url))
        for path, item in api["paths"].items()
        for method, described in item.items()
        if method in _METHODS
    ]
    objects = {
        name: Object(
            name=name,
            description=schema.get("description", ""),
            fields=fields_of(schema),
            type=type_of(schema),
        )
        for name, schema in sorted(api["components"]["schemas"].items())
        if name != "ErrorCode"  # it has a table of its own
    }
    groups = [
        Group(
            name=tag["name"],
            description=tag["description"],
            operations=[each for name, each in operations if name == tag["name"]],
            objects=[],
        )
        for tag in api["tags"]
    ]
    groups = [group for group in groups if group.operations]
    shared = Group(
        name="Objects",
        description="What operations of several groups take or answer.",
        operations=[],
        objects=[],
    )
    for name, users in _users(groups, objects).items():
        (users[0] if len(users) == 1 else shared).objects.append(objects[name])
    return Reference(groups=[*groups, shared], codes=CODES)


def _users(groups: list[Group], objects: Mapping[str, Object]) -> dict[str, list[Group]]:
    """Return which groups use each object, themselves or within another."""
    users: dict[str, list[Group]] = {name: [] for name in objects}
    for group in groups:
        found: set[str] = set()
        new = set().union(*(operation.objects() for operation in group.operations))
        while new := (new - found) & objects.keys():
            found |= new
            new = set().union(*(objects[name].objects() for name in new))
        for name in found:
            users[name].append(group)
    return users


def _names(fields: Iterable[Field], types: Iterable[Type]) -> set[str]:
    return {name for each in (*(field.type for field in fields), *types) for name in each.objects}


def _operation(
    api: Mapping[str, Any],
    method: str,
    path: str,
    described: Mapping[str, Any],
    public_url: str,
) -> Operation:
    answers = [
        _answer(api, status, each) for status, each in sorted(described["responses"].items())
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
        body_fields=fields_of(_resolved(api, body)),
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


def _answer(api: Mapping[str, Any], status: str, given: Mapping[str, Any]) -> Answer:
    answer = _resolved(api, given)
    content = answer.get("content", {})
    schemas = [each["schema"] for each in content.values() if "schema" in each]
    return Answer(
        status=status,
        text=answer.get("description", ""),
        type=type_of(schemas[0]) if schemas else None,
        media_types=tuple(content),
    )


def _resolved(api: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a reference stands for."""
    found: Any = given
    while "$ref" in found:
        reference = found["$ref"].removeprefix("#/").split("/")
        found = api
        for step in reference:
            found = found[step]
    resolved: Mapping[str, Any] = found
    return resolved
