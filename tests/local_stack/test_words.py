"""What the Makefile's words print, and the shell that `make shell` becomes."""

import io
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from local_stack import __main__ as words
from local_stack.settings import Ports, StackSettings
from local_stack.stack import Stack

DEMO = {
    "PENSTOCK_URL": "http://localhost:8000",
    "PENSTOCK_MODEL": "penstock-demo",
    "PENSTOCK_ACME_KEY": "pk-acme",
    "PENSTOCK_ACME_EMAIL": "owner@acme.example",
    "PENSTOCK_ACME_PASSWORD": "secret-of-acme",
    "PENSTOCK_GLOBEX_KEY": "pk-globex",
    "PENSTOCK_GLOBEX_EMAIL": "owner@globex.example",
    "PENSTOCK_GLOBEX_PASSWORD": "secret",
    "PENSTOCK_OPERATOR_EMAIL": "operator@example.org",
    "PENSTOCK_OPERATOR_PASSWORD": "secret",
}


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    (tmp_path / "var").mkdir()
    stack = Stack(tmp_path, tmp_path / "var", StackSettings(ports=Ports()))
    stack.demo_env_file.write_text("".join(f"{name}={value}\n" for name, value in DEMO.items()))
    return stack


def test_the_printed_curl_line_is_one_shell_command() -> None:
    curl = next(line for line in words.accounts(DEMO) if line.startswith("curl"))
    parts = shlex.split(curl)
    assert parts[:3] == ["curl", "-N", "http://localhost:8000/v1/chat/completions"]
    assert "Authorization: Bearer pk-acme" in parts


def test_a_second_up_prints_accounts_and_the_command_again(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Stack, "up", lambda *_, **__: False)
    monkeypatch.setattr(words, "engine_environment", lambda: None)
    assert words._up(stack) == 0
    said = capsys.readouterr().out
    assert said.startswith("Penstock is up: http://localhost:8000/") and "Started" not in said
    assert "secret-of-acme" in said and "curl -N http://localhost:8000/v1/" in said


@pytest.mark.parametrize("is_person", [True, False])
def test_the_shell_has_the_settings_and_our_python_before_others(
    stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_person: bool,
) -> None:
    became: list[Any] = []
    monkeypatch.setattr(os, "execvpe", lambda *arguments: became.extend(arguments))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: is_person)
    monkeypatch.setenv("SHELL", "/bin/bash")
    words._shell(stack)
    program, arguments, environ = became
    assert program == "/bin/bash"
    assert environ["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert environ["PENSTOCK_DATABASE_URL"] == stack.environ["PENSTOCK_DATABASE_URL"]
    assert bool(capsys.readouterr().out) is is_person, "programs read what a shell prints"
    assert (arguments == ["/bin/bash"]) is not is_person
    if is_person:
        _, _, settings = arguments
        assert "(penstock)" in Path(settings).read_text()
