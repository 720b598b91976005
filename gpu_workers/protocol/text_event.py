"""An event of which only the text is said, built by whoever reads it."""

from typing import Final

import msgspec

_quoted: Final = msgspec.json.Encoder().encode


def text_event(form: tuple[bytes, bytes], text: str) -> bytes:
    """Return the JSON of an event: what precedes and what follows a text, with the text between."""
    before, after = form
    return before + _quoted(text) + after
