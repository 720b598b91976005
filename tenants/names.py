"""Names that people choose: of organisations, projects, keys, webhooks and themselves. They stand
in pages, logs and e-mails to others, so they are one line and do not write backwards."""

import re
from typing import Final

from django.core.exceptions import ValidationError

# Longer is cut in e-mails: what a stranger is mailed is of the sender's choosing.
MAILED_CHARACTERS: Final = 80

# Control characters, the separators of lines and paragraphs, and marks that change the direction
# in which what follows is written. What joins letters is left: several scripts need it.
_NOT_ONE_LINE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
# What mail programs make a link of.
_LINKING: Final = re.compile(r"(?<=\S)([.:/@])(?=\S)")


def one_line(name: str) -> None:
    """Check a name. Raises `ValidationError`."""
    if _NOT_ONE_LINE.search(name):
        raise ValidationError(
            "A name is one line: without line breaks, tabs and other control characters.",
            code="not_one_line",
        )


def as_mailed(name: str) -> str:
    """Return a name as e-mails have it: one line, bounded, and nothing in it is a link."""
    text = _LINKING.sub(r"\1 ", " ".join(_NOT_ONE_LINE.sub(" ", name).split()))
    is_long = len(text) > MAILED_CHARACTERS
    return f"{text[: MAILED_CHARACTERS - 1]}…" if is_long else text
