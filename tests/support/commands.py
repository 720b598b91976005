"""manage.py, as a test asks it."""

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError


def run(*arguments: str) -> Any:
    """The one JSON value that a command prints, and nothing but it."""
    out = io.StringIO()
    call_command(*arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def refused(*arguments: str) -> str:
    """What a command says that refuses."""
    with pytest.raises(CommandError) as caught:
        call_command(*arguments)
    return str(caught.value)


def attempt(*arguments: str) -> None:
    """Ask a command that refuses, in one line, and raise what its refusal was made of."""
    with pytest.raises(CommandError) as caught:
        call_command(*arguments)
    assert "\n" not in str(caught.value)
    cause = caught.value.__cause__ or caught.value.__context__
    assert cause is not None, f"a refusal without a cause: {caught.value}"
    raise cause
