"""The README's snippets do what it says, run as they are printed there, and so do the calls of
docs."""

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Final

import pytest

from tests.support.places import ROOT
from tests.support.printed.blocks import blocks
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]

README: Final = ROOT / "README.md"
_CALL: Final = re.compile(r"^curl (?:.*\\\n)*.*$", re.MULTILINE)
_ADDRESS: Final = "http://localhost:8000"
# By their first line: what runs them otherwise.
ELSEWHERE: Final = {
    "make up": "tests/local_stack, and this stack",
    "make test": "this suite",
    ".venv-engine/bin/python -m gpu_workers.train_adapter --data conversations.jsonl "
    "--out peft-output": "tests/gpu_workers/train_adapter",
    ".venv/bin/python -m gpu_workers --engine sim --model sim": "tests/gpu_workers/sim",
}


def run(language: str, snippet: str, folder: Path, stack: LiveStack) -> str:
    """Run a snippet in a shell that has read `var/demo.env`, against this stack. -> its output"""
    snippet = snippet.replace(_ADDRESS, stack.url)
    if language == "python":
        (folder / "snippet.py").write_text(snippet, encoding="utf-8")
        snippet = f"set -a; . var/demo.env\n{sys.executable} snippet.py"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", snippet],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)} | stack.environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path, live_stack: LiveStack) -> Path:
    """A checkout in which this stack is the one that `make up` has started."""
    for name in (".venv", "manage.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "var").symlink_to(live_stack.var_folder)
    return tmp_path


def test_every_snippet_runs_here_or_it_is_said_where() -> None:
    firsts = [text.splitlines()[0] for _, text in blocks(README)]
    assert set(ELSEWHERE) <= set(firsts)
    assert len(firsts) - len(ELSEWHERE) == 3


def test_each_snippet_does_what_the_readme_says(folder: Path, live_stack: LiveStack) -> None:
    here = [each for each in blocks(README) if each[1].splitlines()[0] not in ELSEWHERE]
    stream, client, commands = (run(*each, folder, live_stack) for each in here)
    assert stream.rstrip().endswith("data: [DONE]") and '"content"' in stream
    assert client.strip()
    assert '"name": "Initech"' in commands and "no problem" in commands


def test_each_call_that_docs_print_is_taken(live_stack: LiveStack, tmp_path: Path) -> None:
    texts = [text for file in sorted((ROOT / "docs").glob("*.md")) for _, text in blocks(file)]
    calls = [found for text in texts for found in _CALL.findall(text)]
    assert len(calls) == 2
    name = f"Calls {uuid.uuid4().hex[:8]}"
    tenant = live_stack.told_by("create_tenant", name, "--tier", "standard")
    issued = live_stack.told_by("create_api_key", name, "--scope", "admin")
    environ = {
        "TENANT_ID": tenant["tenant_id"],
        "PROJECT_ID": tenant["project_id"],
        "PENSTOCK_API_KEY": issued["key"],
        "PENSTOCK_ACME_KEY": live_stack.acme_key,
    }
    for call in calls:
        command = call.replace("https://penstock.example", live_stack.url)
        done = subprocess.run(
            ["bash", "-euc", command.replace("curl", "curl --fail-with-body -sS", 1)],
            cwd=tmp_path, env={"PATH": os.environ["PATH"], **environ},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (call, done.stdout[:500], done.stderr)
