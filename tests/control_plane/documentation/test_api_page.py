"""/docs/api and the pages of its groups: the document, readable, with examples that are right."""

import re
import shlex
from html.parser import HTMLParser
from typing import Any

import pytest
from control_plane.documentation.reference import Group, Operation, reference_of
from control_plane.management_api.openapi.document import document
from django.test import Client
from jsonschema import Draft202012Validator

from inference.models import ServedModel
from tenants.isolation.scoping import operator_scope
from tests.support.two_tenants import TwoTenants

PAGE = "/docs/api"
GROUPS: list[Group] = reference_of(document(), "https://penstock.example").groups
OPERATIONS: list[Operation] = [each for group in GROUPS for each in group.operations]
MOST_BYTES = 300_000


class Page(HTMLParser):
    """Its anchors, what it leads to in the documentation, and what it loads."""

    def __init__(self, address: str, text: str) -> None:
        super().__init__()
        self.address = address
        self.size = len(text.encode())
        self.ids: list[str] = []
        self.links: set[tuple[str, str]] = set()
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        path, _, anchor = (given.get("href") or "").partition("#")
        if tag == "a" and (path or anchor) and (not path or path.startswith(PAGE)):
            self.links.add((path.partition("?")[0] or self.address, anchor))
        if given.get("style") or (tag == "script" and not given.get("src")) or tag == "style":
            self.inline.append(tag)


def page(address: str = PAGE, client: Client | None = None, **query: str) -> Page:
    answer = (client or Client()).get(address, query)
    assert answer.status_code == 200
    assert "default-src 'self'" in answer["Content-Security-Policy"]
    return Page(address, answer.content.decode())


@pytest.fixture
def pages(db: None) -> dict[str, Page]:
    addresses = [PAGE, *(f"{PAGE}/{group.slug}" for group in GROUPS)]
    return {address: page(address) for address in addresses}


def test_anybody_reads_every_operation_and_object_on_one_of_them(pages: dict[str, Page]) -> None:
    listed = set(pages[PAGE].ids)
    assert {each.id for each in OPERATIONS} <= listed
    for group in GROUPS:
        ids = pages[f"{PAGE}/{group.slug}"].ids
        assert {each.id for each in group.operations} <= set(ids)
        assert {f"object-{each.name}" for each in group.objects} <= set(ids)
    names = [each.name for group in GROUPS for each in group.objects]
    assert sorted(names) == sorted(document()["components"]["schemas"].keys() - {"ErrorCode"})
    for each in pages.values():
        assert len(each.ids) == len(set(each.ids))
        assert each.inline == []


def test_every_link_within_them_leads_somewhere(pages: dict[str, Page]) -> None:
    for each in pages.values():
        for address, anchor in each.links:
            assert address in pages
            assert not anchor or anchor in pages[address].ids, (each.address, address, anchor)


def test_no_page_is_too_large_to_be_read_at_once(pages: dict[str, Page]) -> None:
    assert {address: each.size for address, each in pages.items() if each.size > MOST_BYTES} == {}


def test_a_group_that_is_none_is_not_found() -> None:
    assert Client().get(f"{PAGE}/nothing").status_code == 404


@pytest.mark.parametrize("address", ["/docs", "/docs/"])
def test_the_documentations_own_address_leads_to_the_reference(address: str) -> None:
    answer = Client().get(address)
    assert (answer.status_code, answer["Location"]) == (302, PAGE)


def test_a_search_finds_by_words_of_address_sentences_and_fields() -> None:
    def found(words: str) -> set[str]:
        return {each.id for each in OPERATIONS} & set(page(search=words).ids)

    assert found("rotate KEYS") == {"tenants_keys_rotate"}
    assert {"chat_completions_create", "stream_tickets_create"} <= found("stream")
    nothing = Client().get(PAGE, {"search": "<nothing>"}).content.decode()
    assert "<nothing>" not in nothing and "&lt;nothing&gt;" in nothing


def shown(client: Client, slug: str) -> str:
    answer = client.get(f"{PAGE}/{slug}")
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.django_db
def test_examples_name_a_model_that_the_reader_may_call(houses: TwoTenants) -> None:
    """A stranger sees what everybody may know of; a member what their organisation may."""
    public = shown(Client(), "inference")
    assert "&quot;model&quot;: &quot;public-model&quot;" in public
    with operator_scope("no model is for everybody"):
        ServedModel.objects.filter(name="public-model").update(is_enabled=False)
    stranger = shown(Client(), "inference")
    assert "&quot;model&quot;: &quot;&lt;model&gt;&quot;" in stranger
    assert houses.globex.model.name not in public + stranger
    reader = Client()
    reader.force_login(houses.globex.people["viewer"])
    assert f"&quot;model&quot;: &quot;{houses.globex.model.name}&quot;" in shown(
        reader, "inference"
    )


@pytest.mark.django_db
def test_examples_carry_the_ids_of_whoever_is_signed_in(houses: TwoTenants) -> None:
    reader = Client()
    reader.force_login(houses.acme.people["owner"])
    answer = reader.get(f"{PAGE}/api-keys")
    assert answer["Cache-Control"] == "no-store"
    text = answer.content.decode()
    assert f"export TENANT_ID={houses.acme.tenant.id}" in text
    assert f"export PROJECT_ID={houses.acme.project.id}" in text
    assert f"&quot;project_id&quot;: &quot;{houses.acme.project.id}&quot;" in text
    stranger = shown(Client(), "api-keys")
    assert "export TENANT_ID" not in stranger and str(houses.acme.project.id) not in stranger


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.id)
def test_the_examples_are_programs_and_a_command(operation: Operation) -> None:
    *programs, command = operation.examples
    last = command.code.replace("\\\n", "").splitlines()[-1]
    words = shlex.split(last)
    assert (command.title, words[0]) == ("curl", "curl")
    path = re.sub(r"\{(\w+)\}", lambda match: f"${match[1].upper()}", operation.path)
    assert f"https://penstock.example{path}" in words
    assert programs
    for program in programs:
        compile(program.code, operation.id, "exec")


def bodies() -> list[tuple[str, Any, Any]]:
    return [
        (operation["operationId"], content["schema"], content["example"])
        for item in document()["paths"].values()
        for operation in item.values()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        if "example" in content
    ]


@pytest.mark.parametrize(
    ("operation", "schema", "example"), bodies(), ids=lambda each: str(each)[:40]
)
def test_an_example_is_what_its_schema_takes(operation: str, schema: Any, example: Any) -> None:
    Draft202012Validator({**schema, "components": document()["components"]}).validate(example)
