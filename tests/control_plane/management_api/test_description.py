"""The OpenAPI document: complete, valid, and true of what the code can answer."""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane.management_api.openapi.document import document
from control_plane.management_api.openapi.errors import CODES
from control_plane.management_api.uploads import urls as uploads
from django.core.management import call_command
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from openapi_spec_validator import OpenAPIV31SpecValidator

from inference.openai_api.app import UPLOADS
from inference.openai_api.gateway import create_gateway
from tests.support.gateways.service import settings_of
from tests.support.places import ROOT

API = "/api/v1/"
METHODS = ("get", "post", "put", "patch", "delete")
# Rooms whose errors callers of the API are told.
ROOMS = ("inference", "gpu_workers/requests", "gpu_workers/sim", "gpu_workers/vllm")
# Of these they are told the conflicts; what else is raised there is for people's pages.
ROOMS_OF_CONFLICTS = ("tenants/access", "tenants/webhooks", "tenants/models", "tenants/offboarding")
# Operators alone do this, in their admin.
OF_OPERATORS = {"impersonation.py"}
ADD = "see control_plane/management_api/resources/projects.py, the neighbour"


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document()["paths"].items():
        for method in METHODS:
            if method in item:
                yield method.upper(), path, item[method]


def routes_of(
    patterns: list[URLPattern | URLResolver], prefix: str = "/"
) -> Iterator[tuple[str, str]]:
    """Every method and address of Django's resolver that a viewset answers."""
    for pattern in patterns:
        address = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes_of(pattern.url_patterns, address)
            continue
        view: Any = pattern.callback
        for method in getattr(view, "actions", {}):
            if method in METHODS and method in view.cls.http_method_names:
                yield method.upper(), re.sub(r"<(\w+:)?(\w+)>", r"{\2}", address)


def test_an_unknown_endpoint_is_told_of_every_upload_that_there_is() -> None:
    there_are = {
        (method, re.sub(r"{\w+}", "<upload>", address))
        for method, address in routes_of(uploads.urlpatterns, "/v1/")
    }
    assert {tuple(each.split(" ", 1)) for each in UPLOADS} == there_are


def test_the_document_is_valid_openapi_3_1() -> None:
    OpenAPIV31SpecValidator(json.loads(json.dumps(document()))).validate()
    assert document()["openapi"].startswith("3.1")


def test_nothing_is_left_to_guess_for_drf_spectacular(tmp_path: Path) -> None:
    said = StringIO()
    file = tmp_path / "schema.yaml"
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(file), stderr=said)
    assert yaml.safe_load(file.read_text())["paths"]
    assert said.getvalue() == ""


def test_every_route_is_described_and_every_description_a_route(
    gateway_redis_url: str,
) -> None:
    routes = {
        # Without its slash an address is the same.
        (method, f"{API}schema/" if path == f"{API}schema" else path)
        for method, path in routes_of(get_resolver().url_patterns)
        if path.startswith((API, "/v1/"))
    }
    gateway = create_gateway(settings_of(gateway_redis_url)).http.addresses
    routes |= {(method, re.sub(r"<(\w+)>", r"{\1}", path)) for path, method in gateway.items()}
    described = {(method, path) for method, path, _ in operations()}
    missing, stale = routes - described, described - routes
    assert not missing, (
        f"not in the document: {sorted(missing)}; {ADD}, or openai_api/operations.py"
    )
    assert not stale, f"in the document, and no route: {sorted(stale)}"


def test_every_operation_says_what_it_does() -> None:
    silent = [f"{method} {path}" for method, path, each in operations() if not each.get("summary")]
    assert not silent, f"{silent}: name the action in `summaries` of its viewset; {ADD}"


def test_every_operation_has_one_tag_that_is_described() -> None:
    known = {tag["name"] for tag in document()["tags"]}
    for method, path, each in operations():
        assert len(each["tags"]) == 1
        assert each["tags"][0] in known, (
            f"{method} {path}: nobody has described {each['tags'][0]!r}; "
            "add its line to control_plane/management_api/openapi/tags.py"
        )


def test_operation_ids_are_unique() -> None:
    ids = [each["operationId"] for _, _, each in operations()]
    assert len(ids) == len(set(ids))


def test_every_operation_names_its_credential_or_says_why_it_takes_none() -> None:
    schemes = document()["components"]["securitySchemes"]
    for method, path, each in operations():
        assert {name for named in each["security"] for name in named} <= schemes.keys()
        if {} in each["security"]:
            assert "credential" in each.get("description", ""), (
                f"{method} {path} takes no credential: say why, with "
                "@extend_schema(description=...) as resources/session.py does"
            )


def test_every_operation_has_its_answer_and_the_error_envelope() -> None:
    responses = document()["components"]["responses"]
    for method, path, each in operations():
        statuses = each["responses"].keys()
        assert any(status.startswith("2") for status in statuses), (method, path)
        for status in statuses:
            if status.startswith(("4", "5")):
                name = each["responses"][status]["$ref"].rpartition("/")[2]
                assert responses[name]["content"]["application/json"]["schema"] == {
                    "$ref": "#/components/schemas/Error"
                }


def raised_codes() -> set[str]:
    """The codes of all errors that the code makes, by its text."""
    conflicts = {
        code
        for node in nodes_of(ROOMS_OF_CONFLICTS)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Conflict"
        for code in _codes_in(node)
    }
    return conflicts.union(*(_codes_in(node) for node in nodes_of(ROOMS)))


def nodes_of(rooms: Iterable[str]) -> Iterator[ast.AST]:
    for room in rooms:
        for file in (ROOT / room).rglob("*.py"):
            if "migrations" not in file.parts and file.name not in OF_OPERATORS:
                yield from ast.walk(ast.parse(file.read_text(encoding="utf-8")))


def _codes_in(node: ast.AST) -> set[str]:
    values: list[ast.expr | None] = []
    if isinstance(node, ast.Call) and not ast.unparse(node.func).endswith("ValidationError"):
        values = [each.value for each in node.keywords if each.arg == "code"]
    elif isinstance(node, ast.ClassDef):
        for line in node.body:
            if (isinstance(line, ast.Assign) and _is_code(line.targets[0])) or (
                isinstance(line, ast.AnnAssign) and _is_code(line.target)
            ):
                values.append(line.value)
    return {
        each.value
        for value in values
        for each in ([value] if not isinstance(value, ast.IfExp) else [value.body, value.orelse])
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }


def _is_code(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == "code"


def test_every_code_of_an_error_is_told() -> None:
    missing = raised_codes() - CODES.keys()
    assert not missing, (
        f"{sorted(missing)}: tell callers what it says, in "
        "control_plane/management_api/openapi/errors.py"
    )


@pytest.mark.parametrize("address", ["/api/v1/schema/", "/api/v1/schema"])
@pytest.mark.parametrize(
    ("accept", "query", "kind"),
    [
        ("*/*", "", "application/vnd.oai.openapi"),
        ("text/html,*/*;q=0.8", "", "application/vnd.oai.openapi"),
        ("application/yaml", "", "application/yaml"),
        ("application/json", "", "application/json"),
        ("application/vnd.oai.openapi+json", "", "application/vnd.oai.openapi+json"),
        ("*/*", "?format=json", "application/json"),
        ("application/json", "?format=yaml", "application/yaml"),
    ],
)
def test_anybody_reads_it_in_the_form_they_ask_for(
    address: str, accept: str, query: str, kind: str
) -> None:
    answer = Client().get(address + query, headers={"accept": accept})
    assert answer.status_code == 200
    assert answer["Content-Type"].partition(";")[0] == kind
    read = json.loads if "json" in kind else yaml.safe_load
    assert read(answer.content)["paths"].keys() == document()["paths"].keys()


def test_a_form_that_is_none_is_refused() -> None:
    assert Client().get("/api/v1/schema/?format=xml").json()["error"]["param"] == "format"
    assert Client().get("/api/v1/schema/", headers={"accept": "text/csv"}).status_code == 406


def test_who_has_it_already_is_told_so() -> None:
    first = Client().get("/api/v1/schema/")
    again = Client().get("/api/v1/schema/", headers={"if-none-match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "max-age" in again["Cache-Control"]


def test_it_is_not_made_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    document()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(SchemaGenerator, "get_schema", never)
    assert Client().get("/api/v1/schema/?format=json").status_code == 200
