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
