"""Adds /v1 to the document, from the structs of its door: one of drf-spectacular's
`POSTPROCESSING_HOOKS`. The errors of both come with it."""

from typing import Any, Final

import msgspec

from control_plane.management_api.openapi.errors import error_components, responses
from control_plane.management_api.openapi.extensions import Described
from control_plane.management_api.openapi.security import API_KEY, SCHEMES
from control_plane.management_api.openapi.tags import INFERENCE
from inference.openai_api.operations import OPERATIONS, Operation, Refused

_REFERENCE: Final = "#/components/schemas/{name}"


def add_inference_api(result: Described, **_: Any) -> Described:
    """Return the document with the operations of /v1. Raises `ValueError` where a component of
    theirs has the name of another."""
    components: Described = result["components"]
    structs: list[type[msgspec.Struct]] = [
        struct
        for each in OPERATIONS
        for struct in (each.takes, each.answers, each.streams)
        if struct is not None
    ]
    _references, schemas = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
    for each in OPERATIONS:
        if each.takes is not None:
            _mark_refused(schemas[each.takes.__name__], each.refused)
        result["paths"].setdefault(each.path, {})[each.method.lower()] = _described(each)
    added = error_components()
    added["schemas"] |= schemas
    for kind, more in added.items():
        own: Described = components.setdefault(kind, {})
        if taken := own.keys() & more.keys():
            raise ValueError(f"components/{kind}: {sorted(taken)} of /v1 stand there already")
        own |= more
    components["securitySchemes"] = SCHEMES
    _drop_marks(result)
    return result


def _drop_marks(value: Any) -> None:
    """Drop what drf-spectacular marks enumerations by for a hook that names them: ours have
    none."""
    if isinstance(value, dict):
        value.pop("x-spec-enum-id", None)
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            _drop_marks(each)


def _described(operation: Operation) -> Described:
    described: Described = {
        "operationId": operation.id,
        "summary": operation.summary,
        "description": operation.description,
        "tags": [INFERENCE],
        "security": [{API_KEY: []}],
        "responses": {"200": _answer(operation), **responses(operation.refusals)},
    }
    if "{model}" in operation.path:
        described["parameters"] = [
            {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    if operation.takes is not None:
        content: Described = {"schema": _reference(operation.takes)}
        if operation.example is not None:
            content["example"] = operation.example
        described["requestBody"] = {"required": True, "content": {"application/json": content}}
    return described


def _answer(operation: Operation) -> Described:
    content: Described = {"application/json": {"schema": _reference(operation.answers)}}
    if operation.streams is not None:
        content["text/event-stream"] = {
            "schema": {
                "type": "string",
                "description": "Lines `data: ` with JSON each, the last of which is `[DONE]`.",
                "x-event": _reference(operation.streams),
            }
        }
    return {"description": "", "content": content}


def _reference(struct: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=struct.__name__)}


def _mark_refused(schema: Described, refused: Refused) -> None:
    """Describe the fields that are known and not supported: only values that ask for nothing are
    taken."""
    for name, (harmless, reason) in refused.items():
        schema["properties"][name] = {
            "enum": [*harmless, None],
            "default": None,
            "description": f"Not supported: {reason}.",
        }
