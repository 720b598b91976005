"""From the TOML files of the themes to facts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gpu_workers.demo_model.data_file import DataFileError, checked, read
from gpu_workers.demo_model.facts.fact import Fact

REMEDY: Final = (
    "A fact has key, answer, key_phrases, held_out (at least 4), questions (at least 9) and, "
    "optionally, topics, each text on one line with no space at its ends. Correct it as "
    "facts/__init__.py describes."
)


class _Theme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file: its `[[fact]]` tables, not yet checked."""

    fact: tuple[dict[str, Any], ...]


def read_facts(folder: Path, themes: Sequence[str]) -> tuple[Fact, ...]:
    """Return the facts of `<theme>.toml` in `folder`, in the order of themes and files.

    Raises DataFileError, which names the file and the fact, where a theme has no file or a file no
    theme, where a file holds anything but valid facts, and where two facts have the same key.
    """
    unmatched = {file.stem for file in folder.glob("*.toml")} ^ set(themes)
    if unmatched:
        theme = min(unmatched)
        raise DataFileError(
            folder / f"{theme}.toml",
            "the theme has no file" if theme in themes else "the theme is not in THEMES",
            remedy="Let THEMES in facts/__init__.py name each file of the folder.",
        )
    facts: dict[str, Fact] = {}
    files: dict[str, Path] = {}
    for file in (folder / f"{theme}.toml" for theme in themes):
        for fact in _facts_of(file):
            if fact.key in facts:
                raise DataFileError(
                    file,
                    f"{files[fact.key].name} already has a fact of this key",
                    remedy="Rename one of them, or merge the two.",
                    place=f"fact '{fact.key}'",
                    key="key",
                )
            facts[fact.key], files[fact.key] = fact, file
    return tuple(facts.values())


def _facts_of(file: Path) -> Iterator[Fact]:
    """Yield the facts of a file, the lines of each answer joined by spaces; raises as above."""
    for number, table in enumerate(read(file, _Theme, remedy=REMEDY).fact, start=1):
        place = f"fact '{table['key']}'" if table.get("key") else f"fact number {number}"
        fact = checked(table, Fact, file=file, remedy=REMEDY, place=place)
        fact = msgspec.structs.replace(fact, answer=" ".join(fact.answer.split()))
        if not fact.is_held_by(fact.answer):
            raise DataFileError(
                file,
                f"the answer lacks a key phrase ({', '.join(map(repr, fact.key_phrases))})",
                remedy="Copy key_phrases word for word from the answer.",
                place=place,
                key="key_phrases",
            )
        yield fact
