"""The calls that an API key may make, as the command line has them: noun, verb, what they take. Of
the API's description alone, so that what the API takes the command line takes."""

from collections.abc import Mapping
from typing import Any, Final

from control_plane.management_api.openapi.document import document
from control_plane.management_api.openapi.security import API_KEY

_VERBS: Final = {"retrieve": "show", "partial_update": "change", "destroy": "delete"}
# How much of a list is for the command line to say.
_OF_LISTS: Final = {"limit", "cursor", "format"}
# What a table need not say: it is the heading, or known to whoever asks.
_HIDDEN: Final = {"object"}


def command_line_calls() -> dict[str, dict[str, Any]]:
    """Return noun, verb and call, in the order of their names."""
    found: dict[str, dict[str, Any]] = {}
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/api/v1/tenants/{tenant_id}") and _takes_keys(operation):
                noun, verb = _names(operation["operationId"])
                found.setdefault(noun, {})[verb] = _call(noun, path, method, operation)
    return {noun: dict(sorted(verbs.items())) for noun, verbs in sorted(found.items())}


def _takes_keys(operation: Mapping[str, Any]) -> bool:
    return any(API_KEY in each for each in operation.get("security", []))


def _names(operation_id: str) -> tuple[str, str]:
    """Return noun and verb: tenants_webhooks_deliveries_list is `webhooks-deliveries list`."""
    action = next((each for each in _VERBS if operation_id.endswith(f"_{each}")), None)
    action = action or operation_id.rpartition("_")[2]
    noun = operation_id.removesuffix(f"_{action}").removeprefix("tenants").strip("_")
    return (noun or "organisation").replace("_", "-"), _VERBS.get(action, action)


def _call(noun: str, path: str, method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    parameters = operation.get("parameters", [])
    ids = [each["name"] for each in parameters if each["in"] == "path"]
    columns = _columns(operation)
    return {
        "noun": noun.replace("-", " "),
        "summary": operation["summary"],
        "help": operation.get("description", ""),
        "method": method.upper(),
        "path": path,
        "ids": [name for name in ids if name != "tenant_id"],
        "query": [
            _field(each["name"], each["schema"], is_required=bool(each.get("required")))
            for each in parameters
            if each["in"] == "query" and each["name"] not in _OF_LISTS
        ],
        "body": _body(operation),
        "columns": columns,
        "is_paged": any(each["name"] == "limit" for each in parameters),
    }


def _body(operation: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = operation.get("requestBody", {}).get("content", {})
    schema = _resolved(content.get("application/json", {}).get("schema", {}))
    required = schema.get("required", [])
    return [
        _field(name, field, is_required=name in required)
        for name, field in schema.get("properties", {}).items()
        if not _resolved(field).get("readOnly")
    ]


def _field(name: str, schema: Mapping[str, Any], *, is_required: bool) -> dict[str, Any]:
    schema = _resolved(schema)
    is_many = _type(schema) == "array"
    one = _resolved(schema.get("items", {})) if is_many else schema
    return {
        "name": name,
        "type": _type(one),
        "choices": [each for each in one.get("enum", []) if each is not None],
        "is_many": is_many,
        "is_required": is_required,
        "help": schema.get("description", ""),
    }


def _columns(operation: Mapping[str, Any]) -> list[str]:
    """Return what a table shows of a list's rows; nothing of what is no list."""
    content = operation["responses"].get("200", {}).get("content", {}).get("application/json", {})
    properties = _resolved(content.get("schema", {})).get("properties", {})
    if "next_cursor" not in properties:
        return []
    rows = _resolved(_resolved(properties["data"]).get("items", {})).get("properties", {})
    simple = [name for name, each in rows.items() if _type(_resolved(each)) not in {"object"}]
    return [name for name in simple if name not in _HIDDEN]


def _type(schema: Mapping[str, Any]) -> str:
    """Return the one type of a value that is not null: of one that may have several forms, as a
    date or a moment, what all of them are."""
    forms = {_type(_resolved(each)) for each in schema.get("anyOf", [])}
    told = schema.get("type") or ("string" if "enum" in schema or forms == {"string"} else "object")
    if isinstance(told, list):
        told = next(each for each in told if each != "null")
    return str(told)


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a schema says itself, or where it refers to; of choices with null the other."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return {**_resolved(document()["components"]["schemas"][name]), **_beside(schema)}
    for several in ("oneOf", "anyOf", "allOf"):
        parts = [_resolved(each) for each in schema.get(several, [])]
        told = [part for part in parts if part.get("type") != "null" and part.get("enum") != [None]]
        if len(told) == 1:
            return {**told[0], **_beside(schema)}
    return schema


def _beside(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: schema[name] for name in ("description", "readOnly") if name in schema}
