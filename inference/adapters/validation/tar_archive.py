"""Reads a tar's headers, strictly: POSIX ustar with pax records, GNU's with long names, and the old
one of Unix v7; plain files only."""

import re
from collections.abc import Iterator
from typing import Final

from inference.adapters.validation.member import (
    Member,
    broken,
    decoded_name,
    link_refused,
    special_refused,
    stray_bytes,
    too_many,
)
from inference.adapters.validation.span import Span
from inference.adapters.validation.verdicts import Bounds

_BLOCK: Final = 512
MAGIC: Final = b"ustar"
MAGIC_AT: Final = 257
_POSIX: Final = b"ustar\x00"
_MOST_PAX_BYTES: Final = 64 * 1024
_FILE: Final = (b"0", b"\x00")
_FOLDER: Final = b"5"
_LINKS: Final = (b"1", b"2")
_PAX: Final = b"x"
_PAX_FOR_ALL: Final = b"g"
# GNU's: its data are the name of the next entry.
_LONG_NAME: Final = b"L"
_OCTAL: Final = re.compile(rb"[ \x00]*([0-7]*)[ \x00]*\Z")
_PAX_RECORD: Final = re.compile(rb"([1-9][0-9]{0,6}) ([^=\x00]+)=")
# Records that would change where a file's bytes are, or what it is.
_REFUSED_RECORDS: Final = ("size", "linkpath", "GNU.sparse.", "SUN.holesdata", "hdrcharset")


def read_tar(archive: Span, bounds: Bounds) -> list[Member]:
    """Return the entries. Raises `UploadRefused`."""
    members: list[Member] = []
    long_name: str | None = None
    for count, (header, data) in enumerate(_entries(archive)):
        if count >= 2 * bounds.members or len(members) >= bounds.members:
            raise too_many(bounds.members)
        kind = header[156:157]
        if kind in (_PAX, _PAX_FOR_ALL):
            path = _pax_path(data)
            if kind == _PAX:
                long_name = path
            elif path is not None:
                raise broken("one name is given to all of its files")
            continue
        if kind == _LONG_NAME:
            long_name = _gnu_name(data)
            continue
        name = long_name if long_name is not None else _name(header)
        long_name = None
        if kind in _LINKS:
            raise link_refused(name)
        if kind not in (*_FILE, _FOLDER):
            raise special_refused(name)
        is_folder = kind == _FOLDER or name.endswith("/")
        members.append(Member(name=name, is_folder=is_folder, data=data, size=data.size))
    return members


def is_old_tar(archive: Span) -> bool:
    """Return whether an archive begins with a header of Unix v7, which has no magic: its checksum
    tells."""
    if archive.size < _BLOCK:
        return False
    header = archive.part(0, _BLOCK).read()
    told = _OCTAL.match(header[148:156])
    return told is not None and bool(told[1]) and int(told[1], 8) == _checksum(header)


def _checksum(header: bytes) -> int:
    """Return the sum of a header's bytes with spaces in the checksum's place."""
    return sum(header) - sum(header[148:156]) + 8 * ord(" ")


def _entries(archive: Span) -> Iterator[tuple[bytes, Span]]:
    """Yield each header with the data that follows it, up to the empty block, behind which nothing
    may be but zeros."""
    at = 0
    while True:
        if at + _BLOCK > archive.size:
            raise broken("its end is missing")
        header = archive.part(at, _BLOCK).read()
        if not any(header):
            break
        size = _checked_size(header)
        at += _BLOCK
        padded = -(-size // _BLOCK) * _BLOCK
        if at + padded > archive.size:
            raise broken("it ends in the middle of a file")
        yield header, archive.part(at, size)
        at += padded
    for chunk in archive.part(at, archive.size - at).chunks():
        if chunk.count(0) != len(chunk):
            raise stray_bytes()


def _checked_size(header: bytes) -> int:
    """Return the bytes of data behind a header, whose checksum has to be right."""
    is_known = header[MAGIC_AT : MAGIC_AT + 5] in (MAGIC, bytes(5))
    if not is_known or _number(header[148:156]) != _checksum(header):
        raise broken("a header has another checksum than it says")
    return _number(header[124:136])


def _number(field: bytes) -> int:
    found = _OCTAL.match(field)
    if found is None:
        raise broken("a header has no octal number where one belongs")
    return int(found[1] or b"0", 8)


def _name(header: bytes) -> str:
    name = header[:100].split(b"\x00", 1)[0]
    prefix = header[345:500].split(b"\x00", 1)[0]
    if header[MAGIC_AT : MAGIC_AT + 6] == _POSIX and prefix:
        name = prefix + b"/" + name
    return decoded_name(name)


def _gnu_name(data: Span) -> str:
    if data.size > _MOST_PAX_BYTES:
        raise broken("a file's name is longer than names are")
    return decoded_name(data.read().rstrip(b"\x00"))


def _pax_path(data: Span) -> str | None:
    """Return the name that a pax header gives the next file; what else it tells of one (times,
    owners, attributes) is nothing to us."""
    if data.size > _MOST_PAX_BYTES:
        raise broken("a pax header is larger than names need")
    records = data.read()
    path = None
    while records:
        found = _PAX_RECORD.match(records)
        size = int(found[1]) if found else 0
        if (
            found is None
            or not found.end() < size <= len(records)
            or records[size - 1] != ord("\n")
        ):
            raise broken("a pax header holds what is no record")
        key = decoded_name(found[2])
        if key == "path":
            path = decoded_name(records[found.end() : size - 1])
        elif key.startswith(_REFUSED_RECORDS):
            raise special_refused(key)
        records = records[size:]
    return path
