"""What README and docs print is what the code takes: commands of manage.py have the arguments that
their parsers know, programs compile, and JSON is JSON."""

import json
import re
import shlex
import uuid
from collections.abc import Iterator
from typing import Final

import pytest
from django.core.management import get_commands, load_command_class

from tests.support.places import ROOT
from tests.support.printed.blocks import blocks

_COMMAND: Final = re.compile(r"(?:\.venv/bin/python )?manage\.py (?P<words>.+)")
# As manuals write them: what may be left out, what stands for something, what one may choose from.
_OPTIONAL: Final = re.compile(r"\[[^\]]*\]")
_PLACEHOLDER: Final = re.compile(r"<[^>]*>")
_CHOICE: Final = re.compile(r"(\w+(?:\|\w+)+)")
# What follows so many blanks is a remark.
_REMARK: Final = re.compile(r"\s{3,}.*")


def printed() -> list[tuple[str, str]]:
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [each for file in files for each in blocks(file)]


def commands() -> Iterator[str]:
    for _, text in printed():
        for line in re.sub(r" *\\\n *", " ", text).splitlines():
            found = _COMMAND.match(line.strip())
            if found is not None:
                yield from alternatives(_REMARK.sub("", found["words"]))


def alternatives(words: str) -> list[str]:
    words = _PLACEHOLDER.sub(str(uuid.UUID(int=1)), _OPTIONAL.sub("", words))
    found = _CHOICE.search(words)
    return [words.replace(found[0], each) for each in found[0].split("|")] if found else [words]


@pytest.mark.parametrize("words", list(commands()))
def test_a_printed_command_is_one_that_its_parser_takes(words: str) -> None:
    name, *arguments = shlex.split(words)
    command = load_command_class(get_commands()[name], name)
    command.create_parser("manage.py", name).parse_args(arguments)


@pytest.mark.parametrize(("language", "text"), printed())
def test_a_printed_block_is_in_the_language_that_it_names(language: str, text: str) -> None:
    match language:
        case "python":
            compile(text, "block", "exec")
        case "json":
            json.loads(text)
        case _:
            assert language in {"", "bash", "yaml"}


def test_there_is_much_to_look_at() -> None:
    assert len(list(commands())) > 40
