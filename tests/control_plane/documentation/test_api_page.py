"""/docs/api: the document, readable, with examples that are right."""

import gzip
import re
import shlex
from html.parser import HTMLParser
from typing import Any

import pytest
from control_plane.documentation.reference import Operation, reference_of
from django.test import Client
from jsonschema import Draft202012Validator

from inference.management_api.description.document import document

PAGE = "/docs/api"
OPERATIONS: list[Operation] = [
    each
    for group in reference_of(document(), "https://penstock.example").groups
    for each in group.operations
]


class Page(HTMLParser):
    """Its anchors, the anchors that it leads to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.anchors: set[str] = set()
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        href = given.get("href") or ""
        if tag == "a" and href.startswith(("#", f"{PAGE}#")):
            self.anchors.add(href.partition("#")[2])
        if given.get("style") or (tag == "script" and not given.get("src")) or tag == "style":
            self.inline.append(tag)


def test_anybody_reads_every_operation_on_it() -> None:
    answer = Client().get(PAGE)
    assert answer.status_code == 200
    assert "default-src 'self'" in answer["Content-Security-Policy"]
    page = Page(answer.content.decode())
    assert {each.id for each in OPERATIONS} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert page.inline == []


def test_every_link_within_it_leads_somewhere() -> None:
    page = Page(Client().get(PAGE).content.decode())
    assert page.anchors <= set(page.ids)


def test_a_search_finds_by_words_of_address_and_summary() -> None:
    page = Page(Client().get(PAGE, {"search": "rotate KEY"}).content.decode())
    found = {each.id for each in OPERATIONS} & set(page.ids)
    assert found == {"tenants_keys_rotate"}
    nothing = Client().get(PAGE, {"search": "<nothing>"}).content.decode()
    assert "<nothing>" not in nothing and "&lt;nothing&gt;" in nothing


def test_a_page_is_small_enough_to_be_read_at_once() -> None:
    assert len(gzip.compress(Client().get(PAGE).content)) < 100_000


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.id)
def test_the_examples_are_a_command_and_a_program(operation: Operation) -> None:
    words = shlex.split(operation.examples.curl)
    assert words[0] == "curl"
    path = re.sub(r"\{(\w+)\}", lambda match: f"${match[1].upper()}", operation.path)
    assert f"https://penstock.example{path}" in words
    compile(operation.examples.python, operation.id, "exec")


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
