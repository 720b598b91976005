"""The TOML files of the demo model, read strictly: what is wrong is refused, never skipped."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec

T = TypeVar("T")

Line = Annotated[str, msgspec.Meta(pattern=r"\A\S(.*\S)?\Z")]
"""Text on one line, with no space at its ends."""
Lines = Annotated[tuple[Line, ...], msgspec.Meta(min_length=1)]

# How msgspec names a key: "missing required field `answer`", "of length >= 4 - at `$.held_out`".
_KEY: Final = re.compile(r"field `(\w+)`|`\$\.(\w+)")


class DataFileError(ValueError):
    """A data file is not what its reader expects.

    `place` says where in the file, such as "fact 'doors'"; it is empty for the whole file. `key` is
    the key there that is missing, unknown or of a wrong value; empty where it is none of these.
    """

    def __init__(
        self, file: Path, reason: str, *, remedy: str, place: str = "", key: str = ""
    ) -> None:
        where = f"{file}: {place}" if place else str(file)
        super().__init__(f"{where}: {reason}. {remedy}")
        self.file = file
        self.place = place
        self.key = key


def read(file: Path, kind: type[T], *, remedy: str) -> T:
    """Return the whole file as a `kind`.

    Raises DataFileError where it is not TOML or not a `kind`; `remedy` tells the author of the file
    what is expected and what to do.
    """
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataFileError(file, f"is not TOML: {error}", remedy=remedy) from error
    return checked(document, kind, file=file, remedy=remedy)


def checked(value: object, kind: type[T], *, file: Path, remedy: str, place: str = "") -> T:
    """Return `value`, which stands at `place` of `file`, as a `kind`.

    Raises DataFileError where a key is missing or unknown, or a value of another type or length.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason = str(error)
        named = _KEY.search(reason)
        key = next(filter(None, named.groups())) if named else ""
        raise DataFileError(file, reason, remedy=remedy, place=place, key=key) from error
