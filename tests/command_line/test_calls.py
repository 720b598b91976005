"""What a key may do at the API it may do on the command line, and reads as well there."""

import json
import re
import shlex
import uuid
from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from click.testing import CliRunner
from command_line import calls
from command_line.application import penstock
from command_line.service import Service
from control_plane.management.commands.write_command_line_calls import calls_json

from tenants.isolation.scoping import operator_scope
from tenants.management import UNREACHABLE
from tenants.models import ApiKey, Project
from tests.command_line.conftest import Asked, told
from tests.support.addresses import body_for, ids_of
from tests.support.places import ROOT
from tests.support.two_tenants import CANARY, House

pytestmark = pytest.mark.django_db

# Waits for the lock of a transaction of its own; tests/acceptance/test_command_line.py has it.
ELSEWHERE: Final = ("export", "create")
EVERY: Final = [
    (noun, verb)
    for noun, verbs in calls.calls().items()
    for verb in verbs
    if (noun, verb) != ELSEWHERE
]
# What the API refuses of a house as it stands, by its code.
REFUSED_HERE: Final = {("adapters-versions", "create"): "not_found"}


def test_it_knows_the_api_as_that_describes_itself() -> None:
    assert calls.FILE.read_text(encoding="utf-8") == calls_json(), (
        "the API has changed: run manage.py write_command_line_calls"
    )


def test_every_call_has_a_help_that_names_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "http://localhost")
    for noun, verbs in calls.calls().items():
        for verb, call in verbs.items():
            result = CliRunner().invoke(penstock, [noun, verb, "--help"])
            assert result.exit_code == 0, (noun, verb, result.output)
            assert call["summary"] in result.output
            for field in (*call["query"], *call["body"]):
                assert f"--{field['name'].replace('_', '-')}" in result.output, (noun, verb)


@pytest.mark.parametrize("noun, verb", EVERY)
def test_every_verb_of_a_key_does_what_the_api_would(
    ask: Asked, acme: House, noun: str, verb: str
) -> None:
    call = calls.calls()[noun][verb]
    address = re.sub(r"\{(\w+)\}", r"<\1>", call["path"])
    words = [str(ids_of(acme)[name]) for name in call["ids"]]
    for name, value in (body_for(address, call["method"], acme) or {}).items():
        for each in value if isinstance(value, list) else [value]:
            said = json.dumps(each) if isinstance(each, dict) else str(each)
            words += [f"--{name.replace('_', '-')}", said]
    result = ask(noun, verb, *words)
    code = REFUSED_HERE.get((noun, verb))
    assert result.exit_code == (0 if code is None else 1), result.output
    if code is not None:
        assert f"({code})" in result.stderr and len(result.stderr.splitlines()) == 1


def test_what_the_documentation_shows_is_asked_rightly(ask: Asked) -> None:
    page = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```\nexport PENSTOCK_URL=(.*?)```", page, re.DOTALL)
    shown = [shlex.split(line)[1:] for line in block.splitlines() if line.startswith("penstock ")]
    for words in shown:
        if words[0] != "chat":  # which needs a model
            result = ask(*words)
            assert result.exit_code in (0, 1), (words, result.output, result.exception)
            assert isinstance(result.exception, SystemExit | None), words
    assert len(shown) > 4


def test_a_list_is_a_table_and_as_json_its_rows(ask: Asked, acme: House) -> None:
    table = ask("projects", "list").stdout
    assert table.splitlines()[0].split()[:2] == ["id", "name"]
    assert acme.project.name in table and CANARY not in table
    (row,) = told(ask("projects", "list", "--json"))
    assert (row["id"], row["name"]) == (str(acme.project.id), acme.project.name)


def test_a_list_is_narrowed_and_read_page_by_page(ask: Asked, acme: House) -> None:
    with operator_scope("test"):
        for number in range(5):
            Project.objects.create(tenant=acme.tenant, name=f"web {number}")
    found = told(ask("projects", "list", "--search", "web", "--json"))
    assert sorted(row["name"] for row in found) == [f"web {number}" for number in range(5)]
    assert len(told(ask("projects", "list", "--search", "web", "--limit", "3", "--json"))) == 3
    assert "No projects." in ask("projects", "list", "--search", "none").stdout


def test_all_pages_of_a_list_are_read(
    ask: Asked, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_PAGE", 2)
    with operator_scope("test"):
        for number in range(4):
            Project.objects.create(tenant=acme.tenant, name=f"web {number}")
    rows = told(ask("projects", "list", "--json"))
    assert len({row["id"] for row in rows}) == len(rows) == 5


def test_a_key_is_made_changed_rotated_and_revoked(ask: Asked, acme: House) -> None:
    made = told(
        ask(
            *("keys", "create", "--project-id", str(acme.project.id), "--name", "ci"),
            *("--scopes", "inference", "--scopes", "usage:read", "--json"),
        )
    )
    assert made["scopes"] == ["inference", "usage:read"]
    changed = ask("keys", "change", made["id"], "--name", "deploys", "--scopes", "inference")
    assert "deploys" in changed.stdout and "usage:read" not in changed.stdout
    rotated = told(ask("keys", "rotate", made["id"], "--overlap-seconds", "60", "--json"))
    assert rotated["key"] != made["key"]
    assert ask("keys", "revoke", made["id"]).exit_code == 0
    with operator_scope("test"):
        assert ApiKey.objects.get(id=made["id"]).is_revoked


def test_a_file_is_printed_as_it_is(ask: Asked, acme: House) -> None:
    assert ask("invoices", "pdf", str(acme.invoice.id)).stdout_bytes.startswith(b"%PDF-")
    assert ask("invoices", "csv", str(acme.invoice.id)).exit_code == 0


def test_a_file_stays_one_and_no_answer_is_null_as_json(ask: Asked, acme: House) -> None:
    assert ask("invoices", "pdf", str(acme.invoice.id), "--json").stdout_bytes.startswith(b"%PDF-")
    assert told(ask("quotas", "delete", str(acme.quota.id), "--json")) is None


class InPieces(httpx.SyncByteStream):
    """A file that comes in pieces, of which the last is lost where the connection breaks."""

    def __init__(self, *, breaks: bool) -> None:
        self._breaks = breaks

    def __iter__(self) -> Iterator[bytes]:
        yield b'{"kind": "tenant"}\n'
        yield b'{"kind": "project"}\n'
        if self._breaks:
            raise httpx.ReadError("the connection broke")


@pytest.mark.parametrize("breaks", [False, True])
def test_a_file_of_json_lines_is_written_as_it_comes(
    monkeypatch: pytest.MonkeyPatch, breaks: bool
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v1/me":
            return httpx.Response(200, json={"tenants": [{"id": "7"}]})
        assert (request.method, request.url.path) == ("POST", "/api/v1/tenants/7/export")
        kind = {"content-type": "application/x-ndjson"}
        return httpx.Response(200, headers=kind, stream=InPieces(breaks=breaks))

    service = Service(url="http://localhost", key="pk-of-nobody")
    transport = httpx.MockTransport(answer)
    service.__dict__["client"] = httpx.Client(base_url=service.url, transport=transport)
    monkeypatch.setenv("PENSTOCK_URL", service.url)
    monkeypatch.setattr(calls, "the_service", lambda: service)
    result = CliRunner().invoke(penstock, ["export", "create"], prog_name="penstock")
    assert result.stdout_bytes == b'{"kind": "tenant"}\n{"kind": "project"}\n'
    assert result.exit_code == (UNREACHABLE if breaks else 0)


def test_a_report_shows_its_sums(ask: Asked) -> None:
    table = ask("usage", "list", "--from", "2026-01-01", "--to", "2026-01-31").stdout
    heading, *rows = table.splitlines()
    assert rows and {"date", "requests"} <= set(heading.split())


@pytest.mark.parametrize(
    ("words", "status", "told_in_it"),
    [
        (["keys", "show", str(uuid.uuid4())], 1, "(not_found)"),
        (["keys", "create", "--name", "x"], 2, "--project-id"),
        (["keys", "create", "--scopes", "root", "--project-id", "x"], 2, "usage:read"),
        (["keys", "make"], 2, "create"),
        (["kees", "list"], 2, "kees"),
        (["quotas", "create", "--limit", "words", "--value", "5"], 2, "tokens_per_day"),
        (["quotas", "create", "--limit", "tokens_per_day", "--value", "many"], 2, "many"),
        (["projects", "create", "--name", " "], 1, "name"),
        (["adapters", "change", str(uuid.uuid4()), "--traffic", "{"], 2, "JSON"),
    ],
)
def test_what_is_wrong_is_told_in_its_last_line(
    ask: Asked, words: list[str], status: int, told_in_it: str
) -> None:
    result = ask(*words)
    assert result.exit_code == status, result.output
    assert told_in_it in result.stderr.splitlines()[-1]


def test_who_may_not_is_told_what_it_takes(ask: Asked) -> None:
    result = ask("members", "list", scopes=("inference",))
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1 and "scope" in result.stderr


def test_another_tenants_record_is_not_there(ask: Asked, globex: House) -> None:
    result = ask("projects", "show", str(globex.project.id))
    assert result.exit_code == 1 and CANARY not in result.output
