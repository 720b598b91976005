"""Whom a request was for, as its client says: values by name, of names that its project has chosen.

A name is `user`, the request's own field, or `metadata.<key>`, one of its metadata.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

USER: Final = "user"
MAX_LABELS: Final = 4  # the user, and three of the metadata
MAX_VALUE_CHARACTERS: Final = 64
# A name's key is as long as OpenAI's may be.
MAX_NAME_CHARACTERS: Final = len("metadata.") + 64
_NAME: Final = re.compile(r"user|metadata\.[A-Za-z0-9_.-]{1,64}")
_DIGEST_CHARACTERS: Final = 16
_KEPT_CHARACTERS: Final = MAX_VALUE_CHARACTERS - _DIGEST_CHARACTERS - 1


def is_label_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def said_labels(user: str | None, metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return all that a request says of whom it is for, by name."""
    said = {f"metadata.{key}": value for key, value in (metadata or {}).items()}
    return said if user is None else {USER: user, **said}


def chosen_labels(names: Iterable[str], said: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the names that were chosen; an empty one is none."""
    values = {name: label_value(said[name]) for name in names if name in said}
    return {name: value for name, value in values.items() if value}


def label_value(text: str) -> str:
    """Return a value as it is stored: what cannot be shown is replaced, and one of more than 64
    characters keeps its first 47 and ends with a digest of all of it, so that two that differ stay
    two."""
    text = text.strip()
    if len(text) <= MAX_VALUE_CHARACTERS:
        return _shown(text)
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{_shown(text[:_KEPT_CHARACTERS])}~{digest}"


def _shown(text: str) -> str:
    return "".join(each if each.isprintable() else "\ufffd" for each in text)
