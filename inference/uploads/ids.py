"""Ids as OpenAI writes them: a word, and a UUID as 32 hex digits."""

import re
import uuid
from typing import Final

from inference.uploads.errors import NoSuchUpload, WrongParts

_FILE: Final = re.compile(r"(?:file-|upload_)([0-9a-f]{32})")
_UPLOAD: Final = re.compile(r"upload_([0-9a-f]{32})")
_PART: Final = re.compile(r"part_([0-9a-f]{32})")


def parse_upload_id(text: str) -> uuid.UUID:
    """Raises `NoSuchUpload`: what is no id is the id of nothing."""
    return _parsed(_UPLOAD, text)


def parse_file_id(text: str) -> uuid.UUID:
    """Raises `NoSuchUpload`. A file has the digits of its upload."""
    return _parsed(_FILE, text)


def parse_part_id(text: str) -> uuid.UUID:
    """Raises `WrongParts`."""
    match = _PART.fullmatch(text)
    if match is None:
        raise WrongParts(f"{text[:80]!r} is no id of a part.", param="part_ids")
    return uuid.UUID(hex=match[1])


def _parsed(pattern: re.Pattern[str], text: str) -> uuid.UUID:
    match = pattern.fullmatch(text)
    if match is None:
        raise NoSuchUpload
    return uuid.UUID(hex=match[1])
