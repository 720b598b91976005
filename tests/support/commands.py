"""A command of `manage.py` as a test asks it: through `penstock`, where that has a verb for it."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result
from command_line.application import penstock
from command_line.failures import MISUSED, REFUSED
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections

from tenants.management import UNREACHABLE
from tenants.verbs import VERBS


def run(*arguments: str) -> Any:
    """The one JSON value that a command prints, and nothing but it."""
    return json.loads(printed(*arguments, "--json"))


def printed(*arguments: str) -> str:
    """What a command prints on standard output where it does what it was asked."""
    words = _as_verb(arguments)
    if words is None:
        out = io.StringIO()
        call_command(*arguments, stdout=out)
        return out.getvalue()
    result = _asked(*words)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def refused(*arguments: str) -> str:
    """What a command says that refuses."""
    words = _as_verb(arguments)
    if words is None:
        with pytest.raises(CommandError) as caught:
            call_command(*arguments)
        return str(caught.value)
    result = _asked(*words)
    assert result.exit_code in (REFUSED, MISUSED, UNREACHABLE), result.output
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1, result.output
    return result.stderr.removeprefix("penstock: ").removesuffix("\n")


def attempt(*arguments: str) -> None:
    """Ask a command that refuses, in one line, and raise what its refusal was made of."""
    with pytest.raises(CommandError) as caught:
        call_command(*arguments)
    assert "\n" not in str(caught.value)
    cause = caught.value.__cause__ or caught.value.__context__
    assert cause is not None, f"a refusal without a cause: {caught.value}"
    raise cause


def _as_verb(arguments: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what leads `penstock` to a command of `manage.py` with its arguments."""
    for verb in VERBS:
        length = len(verb.command)
        if length and arguments[:length] == verb.command:
            return (*str(verb).split(), *arguments[length:])
    return None


def _asked(*words: str) -> Result:
    with _in_this_process():
        return CliRunner().invoke(penstock, words, prog_name="penstock", catch_exceptions=False)


@contextmanager
def _in_this_process() -> Iterator[None]:
    """What the program does to its own process it does not to the tests'."""
    with (
        patch("local_stack.stack_env.local_stack", lambda *_, **__: nullcontext()),
        patch("control_plane.process_limits.forbid_core_dumps"),
        patch("control_plane.database_roles.work_in_background"),
        patch.object(connections, "close_all"),
    ):
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
