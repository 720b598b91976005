"""The examples of /docs/api do what they say, run as the page prints them for a tenant of their
own: those of inference are answered by the model."""

import html
import os
import re
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.places import NO_TLS
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]

_GROUP: Final = re.compile(r'href="/docs/api/([\w-]+)"')
_OPERATION: Final = re.compile(r'<article [^>]*id="(\w+)"(.*?)</article>', re.DOTALL)
_ADDRESS: Final = re.compile(r'data-method="(\w+)">\w+</span> <code>([^<]+)</code>')
_EXAMPLE: Final = re.compile(r'aria-label="([^"]+)"><code>(.*?)</code></pre>', re.DOTALL)
# Beside a tenant's own, these ids are in the environment.
_GIVEN: Final = frozenset({"{tenant_id}", "{project_id}", "{model}"})
# What is refused as it is printed, and why.
REFUSED: Final[dict[str, tuple[int, str]]] = {}


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


@pytest.fixture(scope="module")
def operations(live_stack: LiveStack) -> list[Printed]:
    """Every operation that the pages show; the one that ends the tenant comes last."""
    return sorted(printed(live_stack), key=lambda each: each.id == "tenants_close_create")


@pytest.fixture
def variables(live_stack: LiveStack, operations: list[Printed]) -> dict[str, str]:
    """What the examples take from the environment: a key that may do everything in a tenant with
    one project, and ids of nothing."""
    name = f"Examples {uuid.uuid4().hex[:8]}"
    tenant = live_stack.told_by("create_tenant", name, "--tier", "standard")
    issued = live_stack.told_by("create_api_key", name, "--scope", "inference", "--scope", "admin")
    names = {each for one in operations for each in re.findall(r"\{(\w+)\}", one.path)}
    return {
        **{each.upper(): str(uuid.uuid4()) for each in names},
        "TENANT_ID": tenant["tenant_id"],
        "PROJECT_ID": tenant["project_id"],
        "MODEL": live_stack.model,
        "PENSTOCK_API_KEY": issued["key"],
        "CSRF_TOKEN": "none",
    }


def printed(stack: LiveStack) -> list[Printed]:
    """Return every operation that the pages show."""
    with httpx.Client(base_url=stack.url, verify=NO_TLS, timeout=30) as client:
        slugs = dict.fromkeys(_GROUP.findall(client.get("/docs/api").text))
        pages = [client.get(f"/docs/api/{slug}").text for slug in slugs]
    found = []
    for page in pages:
        for name, panel in _OPERATION.findall(page):
            address = _ADDRESS.search(panel)
            assert address is not None
            examples = {title: html.unescape(code) for title, code in _EXAMPLE.findall(panel)}
            found.append(Printed(name, address[1], address[2], examples))
    return found


def is_as_said(operation: Printed, status: int) -> bool:
    if operation.id in REFUSED:
        return status == REFUSED[operation.id][0]
    return status == 404 if operation.takes_unknown_ids else 200 <= status < 300


def test_every_curl_command_is_taken_as_it_is_printed(
    operations: list[Printed], variables: dict[str, str], tmp_path: Path
) -> None:
    quiet = 'curl() { command curl -sS -o answer -w "%{http_code}" "$@"; }'
    environ = {"PATH": os.environ["PATH"], **variables}
    wrong = {}
    for each in operations:
        done = subprocess.run(
            ["bash", "-euc", f"{quiet}\n{each.examples['curl']}"],
            cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode or not is_as_said(each, int(done.stdout)):
            answer = (tmp_path / "answer").read_text(errors="replace")[:300]
            wrong[each.id] = (done.stdout, done.stderr, answer)
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())


def test_every_program_runs_as_it_is_printed(
    operations: list[Printed],
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    wrong, texts = {}, {}
    for each in operations:
        for title, code in each.examples.items():
            if title == "curl":
                continue
            status = 200
            try:
                exec(compile(code, each.id, "exec"), {})  # noqa: S102 - our own example
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
            texts[each.id, title] = capsys.readouterr().out
            if not is_as_said(each, status):
                wrong[each.id, title] = status
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())
    for name in ("chat_completions_create", "completions_create"):
        assert texts[name, "Python, openai"].strip()
        assert texts[name, "Python, openai, streamed"].strip()
