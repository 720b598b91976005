"""Examples of bodies, made from what the document says of them and the words that we use for each
field: one of drf-spectacular's `POSTPROCESSING_HOOKS`."""

from collections.abc import Mapping
from typing import Any, Final

from inference.management_api.description.extensions import Described

_ID: Final = "6f1c2a34-9b7e-4c0d-8a55-0d3b1e2f4a6c"
EXAMPLE_PROJECT_ID: Final = "c2b7a1de-3f58-4e09-9d41-5a60b8e7f213"
# By the name of the field.
_VALUES: Final[dict[str, Any]] = {
    "name": "web",
    "project_id": EXAMPLE_PROJECT_ID,
    "email": "bob@acme.example",
    "password": "correct horse battery",
    "role": "developer",
    "url": "https://hooks.acme.example/penstock",
    "scopes": ["inference"],
    "limit": "tokens_per_month",
    "value": 2_000_000,
    "threshold_nanos": 5_000_000_000,
    "description": "production",
    "overlap_seconds": 86_400,
    "is_enabled": True,
    "reason": "no longer used",
    "slug": "support",
    "traffic": [{"version": 2, "permille": 1000}],
}
# What an example shows besides the fields that are required.
_ALSO: Final = frozenset({"scopes", "project_id", "overlap_seconds", "role"})


def add_examples(result: Described, **_: Any) -> Described:
    """Return the document with an example of every JSON body that has none."""
    schemas: Mapping[str, Described] = result["components"]["schemas"]
    for item in result["paths"].values():
        for operation in item.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                if name in schemas:
                    content.setdefault("example", _example(schemas[name]))
    return result


def _example(schema: Described) -> dict[str, Any]:
    fields: Mapping[str, Described] = schema.get("properties", {})
    wanted = {*schema.get("required", ()), *(_ALSO & fields.keys())} or set(list(fields)[:1])
    return {name: _value(name, fields[name]) for name in fields if name in wanted}


def _value(name: str, schema: Described) -> Any:
    if name in _VALUES:
        return _VALUES[name]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"), schema.get("format"):
        case "integer", _:
            return schema.get("minimum", 1)
        case "boolean", _:
            return True
        case "array", _:
            return [_value(name, schema["items"])]
        case _, "uuid":
            return _ID
        case _, "date-time":
            return "2030-01-31T12:00:00Z"
        case _, "date":
            return "2030-01-31"
        case _:
            return "text"
