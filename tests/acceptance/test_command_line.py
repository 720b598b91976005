"""`penstock` beside a running stack: an operator without a URL, a developer with one."""

import json
import os
import subprocess
import sys
import uuid

import pytest

from tests.support.places import ROOT
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]


def penstock(*words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    kept.pop("DJANGO_SETTINGS_MODULE", None)
    return subprocess.run(
        [sys.executable, "-m", "command_line", *words],
        env={**kept, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", **environ},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_an_operator_makes_a_tenant_and_its_developer_asks_the_model(live_stack: LiveStack) -> None:
    name = f"Initech {uuid.uuid4().hex[:8]}"
    made = penstock("tenants", "create", name, "--tier", "standard", "--json", **live_stack.environ)
    assert (made.returncode, made.stderr) == (0, "")
    slug = json.loads(made.stdout)["slug"]
    scopes = ("--scope", "inference", "--scope", "usage:read")
    issued = penstock("keys", "create", slug, *scopes, "--json", **live_stack.environ)
    assert (issued.returncode, issued.stderr) == (0, "")
    again = penstock("tenants", "tier", slug, "gold", **live_stack.environ)
    assert again.returncode == 1 and again.stdout == ""
    assert len(again.stderr.splitlines()) == 1 and "'gold'" in again.stderr

    mine = {"PENSTOCK_URL": live_stack.url, "PENSTOCK_API_KEY": json.loads(issued.stdout)["key"]}
    asked = penstock("chat", "What is Penstock?", "--max-tokens", "12", **mine)
    assert (asked.returncode, asked.stderr) == (0, "") and len(asked.stdout.split()) > 2
    whole = penstock("chat", "What is Penstock?", "--max-tokens", "12", "--json", **mine)
    assert json.loads(whole.stdout)["choices"][0]["message"]["content"].strip() == (
        asked.stdout.strip()
    )
    unknown = penstock("chat", "hello", "--model", "none", **mine)
    assert unknown.returncode == 1 and len(unknown.stderr.splitlines()) == 1
    forbidden = penstock("models", "list", **mine)
    assert forbidden.returncode == 1 and "keys:write" in forbidden.stderr
    assert penstock("usage", "list", "--group-by", "model", **mine).returncode == 0

    admin = penstock("keys", "create", slug, "--scope", "admin", "--json", **live_stack.environ)
    hers = mine | {"PENSTOCK_API_KEY": json.loads(admin.stdout)["key"]}
    export = penstock("export", "create", **hers)
    assert (export.returncode, export.stderr) == (0, "")
    assert len([json.loads(line) for line in export.stdout.splitlines()]) > 3
