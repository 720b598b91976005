"""The examples of /docs/api do what they say, run as the page prints them for a tenant of their
own: those of inference are answered by the model."""

import html
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.support.chromium.flows import let_limits_pass
from tests.support.places import NO_TLS
from tests.support.stack_addresses import LiveStack, Person

pytestmark = [pytest.mark.engine, pytest.mark.stack]

_GROUP: Final = re.compile(r'href="/docs/api/([\w-]+)"')
_OPERATION: Final = re.compile(r'<article [^>]*id="(\w+)"(.*?)</article>', re.DOTALL)
_ADDRESS: Final = re.compile(r'data-method="(\w+)">\w+</span> <code>([^<]+)</code>')
_EXAMPLE: Final = re.compile(r'aria-label="([^"]+)"><code>(.*?)</code></pre>', re.DOTALL)
# Beside a tenant's own, these ids are in the environment.
_GIVEN: Final = frozenset({"{tenant_id}", "{project_id}", "{model}"})
# What ends what the others need comes last.
_LAST: Final = ("tenants_close_create", "session_destroy")
# What is refused as it is printed, and why.
REFUSED: Final[dict[str, tuple[int, str]]] = {
    "session_create": (401, "its address and password are nobody's"),
    "payments_stripe_create": (404, "this deployment takes no payments"),
    "tenants_webhooks_create": (400, "the name of its server cannot be resolved here"),
    "tenants_sign_on_partial_update": (400, "its provider does not answer"),
    "tenants_membership_destroy": (409, "an organisation keeps an owner"),
    "tenants_transfer_create": (404, "the member that it names is nobody"),
    "invitations_accept_create": (409, "its token is no invitation's"),
}


@dataclass(frozen=True)
class Printed:
    """An operation as the page shows it; `examples` by their titles."""

    id: str
    method: str
    path: str
    examples: dict[str, str] = field(repr=False)

    @property
    def takes_unknown_ids(self) -> bool:
        return bool(set(re.findall(r"\{\w+\}", self.path)) - _GIVEN)


@dataclass(frozen=True)
class Reader:
    """The owner of a tenant of their own, signed in: `operations` are as their pages show them,
    `variables` what the examples take from the environment, a key that may do everything and ids of
    nothing among it."""

    client: httpx.Client
    operations: list[Printed]
    variables: dict[str, str] = field(repr=False)


@pytest.fixture
def reader(live_stack: LiveStack, tmp_path: Path) -> Iterator[Reader]:
    let_limits_pass(live_stack)
    name = f"Examples {uuid.uuid4().hex[:8]}"
    owner = Person(email=f"{uuid.uuid4().hex}@examples.example", password="six lanterns beneath it")
    tenant = live_stack.told_by("create_tenant", name, "--tier", "standard")
    password = tmp_path / "password"
    password.write_text(owner.password)
    make_owner = ("set_member", name, owner.email, "--role", "owner", "--password-file")
    live_stack.manage(*make_owner, str(password))
    issued = live_stack.told_by("create_api_key", name, "--scope", "inference", "--scope", "admin")
    with httpx.Client(base_url=live_stack.public_url, verify=NO_TLS, timeout=30) as client:
        token = client.get("/api/v1/session").json()["csrf_token"]
        person = {"email": owner.email, "password": owner.password}
        headers = {"X-CSRFToken": token}
        answer = client.post("/api/v1/session", json=person, headers=headers)
        assert answer.status_code == 200, answer.text
        operations = sorted(
            printed(client), key=lambda each: each.id in _LAST and 1 + _LAST.index(each.id)
        )
        names = {each for one in operations for each in re.findall(r"\{(\w+)\}", one.path)}
        variables = {
            **{each.upper(): str(uuid.uuid4()) for each in names},
            "TENANT_ID": tenant["tenant_id"],
            "PROJECT_ID": tenant["project_id"],
            "MODEL": live_stack.model,
            "PENSTOCK_API_KEY": issued["key"],
            "EMAIL": owner.email,
            "PASSWORD": owner.password,
        }
        yield Reader(client, operations, variables)


def printed(client: httpx.Client) -> list[Printed]:
    """Return every operation that the pages show."""
    slugs = dict.fromkeys(_GROUP.findall(client.get("/docs/api").text))
    found = []
    for slug in slugs:
        for name, panel in _OPERATION.findall(client.get(f"/docs/api/{slug}").text):
            address = _ADDRESS.search(panel)
            assert address is not None
            examples = {title: html.unescape(code) for title, code in _EXAMPLE.findall(panel)}
            found.append(Printed(name, address[1], address[2], examples))
    return found


def write_cookies(client: httpx.Client, path: Path) -> None:
    """Keep them as curl does."""
    lines = [  # a name without a dot is of the domain .local in Python's jar
        "\t".join(
            [
                each.domain.removesuffix(".local"),
                "FALSE",
                each.path,
                "FALSE",
                "0",
                each.name,
                each.value or "",
            ]
        )
        for each in client.cookies.jar
    ]
    path.write_text("\n".join(["# Netscape HTTP Cookie File", *lines, ""]))


def is_as_said(operation: Printed, status: int) -> bool:
    if operation.id in REFUSED:
        return status == REFUSED[operation.id][0]
    return status == 404 if operation.takes_unknown_ids else 200 <= status < 300


def test_every_curl_command_is_taken_as_it_is_printed(reader: Reader, tmp_path: Path) -> None:
    status = 'curl() { command curl -sS -o answer -w "%{http_code}" "$@"; }'
    environ = {"PATH": os.environ["PATH"], **reader.variables}
    (tmp_path / "adapter.zip").write_bytes(b"a part")
    write_cookies(reader.client, tmp_path / "cookies.txt")
    wrong = {}
    for each in reader.operations:
        *before, last = each.examples["curl"].replace("\\\n", "").splitlines()
        done = subprocess.run(
            ["bash", "-euc", "\n".join([*before, status, last])],
            cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode or not is_as_said(each, int(done.stdout)):
            answer = (tmp_path / "answer").read_text(errors="replace")[:300]
            wrong[each.id] = (done.stdout, done.stderr, answer)
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())


def test_every_program_runs_as_it_is_printed(
    reader: Reader,
    live_stack: LiveStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in reader.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adapter.zip").write_bytes(b"a part")
    wrong, texts = {}, {}
    for each in reader.operations:
        for title, code in each.examples.items():
            if title == "curl":
                continue
            let_limits_pass(live_stack)  # those of signing in
            status, answer = 200, ""
            names: dict[str, Any] = {}
            try:
                exec(compile(code, each.id, "exec"), names)  # noqa: S102 - our own example
            except httpx.HTTPStatusError as error:
                status, answer = error.response.status_code, error.response.text[:300]
            finally:
                if "client" in names:  # the system does it where a program ends
                    names["client"].close()
            texts[each.id, title] = capsys.readouterr().out
            if not is_as_said(each, status):
                wrong[each.id, title] = (status, answer)
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())
    for name in ("chat_completions_create", "completions_create"):
        assert texts[name, "Python, openai"].strip()
        assert texts[name, "Python, openai, streamed"].strip()
