"""Reads a zip's directory, strictly: each byte of the archive belongs to one entry or to the
directory, and both tell the same of every file.

The format is APPNOTE 6.3's: 4.3.7 (local header), 4.3.9 (data descriptor), 4.3.12 (central
directory), 4.3.16 (its end). Zip64 is for what is beyond every bound here, and refused.
"""

import re
import struct
from dataclasses import dataclass
from typing import Any, Final

from inference.adapters.validation.member import (
    Member,
    broken,
    check_mode,
    decoded_name,
    stray_bytes,
    too_many,
)
from inference.adapters.validation.span import Span
from inference.adapters.validation.verdicts import Bounds, RefusalCode, UploadRefused, shown

_END_MAGIC: Final = b"PK\x05\x06"
MAGIC: Final = (b"PK\x03\x04", _END_MAGIC)

_END: Final = struct.Struct("<4s4H2LH")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_MOST_ENTRY_BYTES: Final = 4096  # of one entry in the directory: its name, its extra fields
_ENCRYPTED: Final = 1 << 0
_DESCRIPTOR_FOLLOWS: Final = 1 << 3
_STRONGLY_ENCRYPTED: Final = 1 << 6
_STORED: Final = 0
_DEFLATED: Final = 8
_AES: Final = 99
_MOST_REMARK_BYTES: Final = 0xFFFF
_COMMIT: Final = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\Z")
_DESCRIPTOR_BYTES: Final = (12, 16)  # without and with its signature
_ZIP64: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class _Placed:
    """An entry, and the part of the archive that it takes but for a descriptor behind it."""

    member: Member
    start: int
    end: int
    has_descriptor: bool


def read_zip(archive: Span, bounds: Bounds) -> list[Member]:
    """Return the entries. Raises `UploadRefused`."""
    if archive.size < _END.size:
        raise broken("it is shorter than the end of a zip")
    end_at = _end_of(archive)
    _, disk, directory_disk, here, count, size, offset, _ = _END.unpack(
        archive.part(end_at, _END.size).read()
    )
    if count > bounds.members:
        raise too_many(bounds.members)
    if disk or directory_disk or here != count:
        raise broken("it is one part of several")
    if offset + size != end_at:
        raise stray_bytes()
    if size > count * _MOST_ENTRY_BYTES:
        raise broken("its directory is larger than its entries need")
    directory = archive.part(offset, size).read()
    placed: list[_Placed] = []
    at = 0
    for _ in range(count):
        entry, at = _read_entry(archive, directory, at, offset)
        placed.append(entry)
    if at != len(directory):
        raise stray_bytes()
    _check_tiling(placed, offset)
    return [entry.member for entry in placed]


def _end_of(archive: Span) -> int:
    """Return where the directory's end begins: the archive's last bytes, or those before the commit
    that `git archive` writes there."""
    size = min(archive.size, _END.size + _MOST_REMARK_BYTES)
    tail = archive.part(archive.size - size, size).read()
    if _END_MAGIC not in tail:
        raise broken("it has no directory at its end")
    at = tail.rindex(_END_MAGIC)
    remark = tail[at + _END.size :]
    told = int.from_bytes(tail[at + _END.size - 2 : at + _END.size], "little")
    if at + _END.size > size or told != len(remark):
        raise stray_bytes()
    if remark and not _COMMIT.match(remark):
        raise UploadRefused(
            RefusalCode.ARCHIVE_STRAY_BYTES,
            f"The zip has a comment ({shown(remark.decode(errors='replace'))!r}). Make it without "
            "one (zip -z).",
        )
    return archive.size - size + at


def _read_entry(archive: Span, directory: bytes, at: int, directory_at: int) -> tuple[_Placed, int]:
    """Return the entry that the directory has at `at`, and where its next one is."""
    if at + _ENTRY.size > len(directory):
        raise broken("its directory ends in the middle of an entry")
    fields = _ENTRY.unpack_from(directory, at)
    signature, _, _, flags, method, _, _, crc, packed, size, name_size, extra, remark = fields[:13]
    mode, start = fields[15] >> 16, fields[16]
    name_at = at + _ENTRY.size
    next_at = name_at + name_size + extra + remark
    if signature != b"PK\x01\x02" or next_at > len(directory):
        raise broken("its directory holds what is no entry")
    raw_name = directory[name_at : name_at + name_size]
    name = decoded_name(raw_name)
    _check_entry(name, flags, method, (packed, size, start), mode)
    data_at = _check_local(archive, fields, raw_name, directory_at)
    if data_at + packed > directory_at:
        raise stray_bytes()
    member = Member(
        name=name,
        is_folder=name.endswith("/"),
        data=archive.part(data_at, packed),
        size=size,
        is_deflated=method == _DEFLATED,
        crc=crc,
    )
    has_descriptor = bool(flags & _DESCRIPTOR_FOLLOWS)
    return _Placed(member, start, data_at + packed, has_descriptor), next_at


def _check_entry(
    name: str, flags: int, method: int, numbers: tuple[int, int, int], mode: int
) -> None:
    if flags & (_ENCRYPTED | _STRONGLY_ENCRYPTED) or method == _AES:
        raise UploadRefused(
            RefusalCode.ARCHIVE_ENCRYPTED,
            f"{shown(name)} is encrypted. Make the archive without a password: what we store is "
            "encrypted by us.",
            where=shown(name),
        )
    if method not in (_STORED, _DEFLATED) or _ZIP64 in numbers:
        raise _unread(name)
    check_mode(name, mode)


def _check_local(archive: Span, entry: tuple[Any, ...], raw_name: bytes, directory_at: int) -> int:
    """Return where an entry's data begins. Raises where its local header tells another story than
    the directory: two readers would see two archives."""
    flags, method, crc, packed, size, start = *entry[3:5], *entry[7:10], entry[16]
    if start + _LOCAL.size + len(raw_name) > directory_at:
        raise stray_bytes()
    local = _LOCAL.unpack(archive.part(start, _LOCAL.size).read())
    name_size, extra = local[9], local[10]
    data_at: int = start + _LOCAL.size + name_size + extra
    if _ZIP64 in local[7:9]:
        raise _unread(decoded_name(raw_name))
    told = (crc, packed, size)
    is_told = local[6:9] == told or (flags & _DESCRIPTOR_FOLLOWS and local[6:9] == (0, 0, 0))
    if (
        local[0] != b"PK\x03\x04"
        or local[2:4] != (flags, method)
        or not is_told
        or name_size != len(raw_name)
        or archive.part(start + _LOCAL.size, name_size).read() != raw_name
    ):
        raise broken("an entry's header and the directory differ")
    return data_at


def _check_tiling(placed: list[_Placed], directory_at: int) -> None:
    """Raise where entries overlap, or leave bytes to nobody."""
    at = 0
    may_lie_between: tuple[int, ...] = (0,)
    for entry in sorted(placed, key=lambda entry: entry.start):
        if entry.start - at not in may_lie_between:
            raise stray_bytes()
        at = entry.end
        may_lie_between = _DESCRIPTOR_BYTES if entry.has_descriptor else (0,)
    if directory_at - at not in may_lie_between:
        raise stray_bytes()


def _unread(name: str) -> UploadRefused:
    return UploadRefused(
        RefusalCode.ARCHIVE_KIND,
        f"{shown(name)} is packed in a way that is not read here: only stored or deflated files, "
        "without zip64's extensions. Make the archive with tar, or with zip from the files.",
        where=shown(name),
    )
