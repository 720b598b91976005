"""Examples of bodies, made from what the document says of them and the words that we use for each
field: one of drf-spectacular's `POSTPROCESSING_HOOKS`."""

from collections.abc import Mapping
from typing import Any, Final

from control_plane.management_api.openapi.extensions import Described
from inference.openai_api.operations import EXAMPLE_MODEL

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
    "domain": "acme.example",
    "model": EXAMPLE_MODEL,
    "traffic": [{"version": 2, "permille": 1000}],
}
# Where other fields or values say more, or the calls could not follow one another.
_VALUES_OF: Final[dict[str, dict[str, Any]]] = {
    "tenants_partial_update": {"name": "Acme Research"},
    "tenants_close_create": {"name": "Acme Research"},
    "tenants_projects_partial_update": {"name": "website"},
    "tenants_members_create": {"email": "carol@acme.example"},
    "tenants_sign_on_partial_update": {
        "issuer": "https://login.acme.example",
        "client_id": "penstock",
        "client_secret": "the secret of this client",
    },
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
                    own = _VALUES_OF.get(operation["operationId"], {})
                    content.setdefault("example", _example(schemas[name], own))
    return result


def _example(schema: Described, own: Mapping[str, Any]) -> dict[str, Any]:
    fields: Mapping[str, Described] = schema.get("properties", {})
    wanted = {*schema.get("required", ()), *(_ALSO & fields.keys()), *own}
    wanted = wanted or set(list(fields)[:1])
    return {
        name: _value(name, fields[name], {**_VALUES, **own}) for name in fields if name in wanted
    }


def _value(name: str, schema: Described, values: Mapping[str, Any]) -> Any:
    if name in values:
        return values[name]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"), schema.get("format"):
        case "integer", _:
            return schema.get("minimum", 1)
        case "boolean", _:
            return True
        case "array", _:
            return [_value(name, schema["items"], values)]
        case _, "uuid":
            return _ID
        case _, "date-time":
            return "2030-01-31T12:00:00Z"
        case _, "date":
            return "2030-01-31"
        case _:
            return "text"
