"""What operators do: every command of `manage.py` is a verb, which takes the words that lead to
it."""

import ast
import re
import shlex
import subprocess
import sys
from typing import Final

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError, CommandParser

from tenants.verbs import VERBS, Verb
from tests.support.places import ROOT

OURS: Final = ("tenants", "inference", "control_plane")
# Parts of an installation's set-up and processes, and what benchmarks and this checkout need.
NO_VERBS: Final = {
    "collect_usage",
    "create_database_roles",
    "load_functions",
    "migrate",
    "seed_demo",
    "seed_load",
    "seed_usage",
    "write_command_line_calls",
}


def parser_of(command: str) -> CommandParser:
    parser = load_command_class(get_commands()[command], command).create_parser("penstock", command)
    parser.called_from_command_line = False
    return parser


def started(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `penstock` where nothing is set but this."""
    return subprocess.run(
        [sys.executable, "-m", "command_line", *words],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"} | environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_command_is_a_verb() -> None:
    ours = {name for name, app in get_commands().items() if str(app).startswith(OURS)}
    assert {verb.command[0] for verb in VERBS if verb.command} == ours - NO_VERBS


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.command], ids=str)
def test_a_verb_leads_to_a_command_that_takes_its_words(verb: Verb) -> None:
    command, *first = verb.command
    parser = parser_of(command)
    try:
        parser.parse_args(first)
    except CommandError as error:
        assert "required" in str(error), error


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.command], ids=str)
def test_what_a_command_must_be_given_is_in_the_table_and_is_told(verb: Verb) -> None:
    taken = {each.dest: each for each in parser_of(verb.command[0])._actions}
    assert [name for name in verb.takes if name not in taken] == []
    must = {each.dest for each in taken.values() if each.required and each.nargs != "*"}
    assert must - {"action"} <= verb.takes.keys()
    assert all(taken[name].help for name in verb.takes)


def test_every_verb_is_tried_through_the_command_line() -> None:
    """Of operators: `tests/support/commands.py` asks `penstock` for what it has. Of keys:
    test_calls.py."""
    tried: list[set[object]] = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        if "tests.support.commands import" in text or "tests.support import commands" in text:
            nodes = ast.walk(ast.parse(text))
            tried.append({node.value for node in nodes if isinstance(node, ast.Constant)})
    missing = [
        str(verb)
        for verb in VERBS
        if not any(constants.issuperset(verb.command) for constants in tried)
    ]
    assert missing == []


def test_what_is_shown_of_operators_verbs_is_what_they_take() -> None:
    shown = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for code in re.findall(r"`penstock ([^`]+)`", path.read_text(encoding="utf-8")):
            words = shlex.split(code)
            verb = next((v for v in VERBS if v.command and words[:2] == [v.noun, v.name]), None)
            if verb is not None:
                parser_of(verb.command[0]).parse_args([*verb.command[1:], *words[2:]])
                shown.append(code)
    assert len(shown) > 3


@pytest.mark.parametrize("words", [["--help"], ["keys", "list", "--help"], ["completion", "zsh"]])
def test_what_asks_no_installation_starts_no_django(words: list[str]) -> None:
    program = (
        "import sys; from command_line.application import penstock\n"
        f"try: penstock({words!r}, prog_name='penstock')\n"
        "except SystemExit as end: status = end.code\n"
        "heavy = {'django', 'httpx', 'rich', 'celery'} & set(sys.modules)\n"
        "sys.exit(f'{status} {heavy}' if status or heavy else 0)"
    )
    environ = {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", "PENSTOCK_URL": "http://localhost"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_a_verb_of_operators_takes_is_told_without_an_installation() -> None:
    done = started("credit", "grant", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: penstock credit grant")
    assert "amount" in done.stdout and done.stderr == ""
    assert "--settings" not in done.stdout


def test_of_a_command_with_several_verbs_each_tells_what_it_takes_itself() -> None:
    done = started("invoices", "void", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: penstock invoices void [-h] [--json] [--reason REASON]")
    assert "Void an issued invoice." in done.stdout
    assert not [word for word in ("{", "--pdf", "--month") if word in done.stdout]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_nouns_and_verbs(shell: str) -> None:
    words = {"COMP_WORDS": "penstock keys ro", "COMP_CWORD": "ro" if shell == "fish" else "2"}
    done = started(_PENSTOCK_COMPLETE=f"{shell}_complete", **words)
    assert done.returncode == 0, done.stderr
    assert "rotate" in done.stdout and "revoke" not in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["kees", "list"], "'kees'"),
        (["keys", "make"], "rotate"),
        (["quotas", "create", "--limit", "words", "--value", "5"], "tokens_per_day"),
        (["invitations", "create"], "--email"),
    ],
)
def test_what_is_asked_wrongly_is_told_in_one_line(words: list[str], told: str) -> None:
    done = started(*words, PENSTOCK_URL="http://127.0.0.1:9", PENSTOCK_API_KEY="sk-none")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and told in done.stderr
    assert " --help." in done.stderr


def test_a_service_that_is_not_there_is_told_by_its_own_status() -> None:
    done = started("keys", "list", PENSTOCK_URL="http://127.0.0.1:9", PENSTOCK_API_KEY="sk-none")
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1 and "127.0.0.1:9" in done.stderr
