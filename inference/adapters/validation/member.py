"""A file in an archive, of either kind, before its name and kind were judged."""

import stat
import zlib
from dataclasses import dataclass
from typing import Final

from inference.adapters.validation.span import Span, inflate
from inference.adapters.validation.verdicts import RefusalCode, UploadRefused, shown

_RAW_DEFLATE: Final = -15


@dataclass(frozen=True, kw_only=True)
class Member:
    """`data` are the bytes as the archive has them; deflated ones unpack to `size` bytes, and all
    have the checksum `crc` where the archive has one."""

    name: str
    is_folder: bool
    data: Span
    size: int
    is_deflated: bool = False
    crc: int | None = None

    def unpacked(self, scratch: int) -> Span:
        """Return the file's own bytes, written to `scratch` where they were deflated. Raises
        `UploadRefused` where they are not what the archive says of them."""
        span = self.data
        if self.is_deflated:
            span = inflate(self.data, scratch, window_bits=_RAW_DEFLATE, most=self.size)
        crc = 0
        if self.crc is not None:
            for chunk in span.chunks():
                crc = zlib.crc32(chunk, crc)
        if span.size != self.size or (self.crc is not None and crc != self.crc):
            raise UploadRefused(
                RefusalCode.ARCHIVE_BROKEN,
                f"{shown(self.name)} is not what the archive says of it: its size or its checksum "
                "differs. Make the archive again and upload it whole.",
                where=shown(self.name),
            )
        return span


def check_mode(name: str, mode: int) -> None:
    """Raise `UploadRefused` where a Unix mode is of neither a file nor a folder; 0 says nothing."""
    kind = stat.S_IFMT(mode)
    if stat.S_ISLNK(mode):
        raise link_refused(name)
    if kind and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise special_refused(name)


def link_refused(name: str) -> UploadRefused:
    return UploadRefused(
        RefusalCode.ARCHIVE_LINK,
        f"{shown(name)} is a link. Only plain files are taken: put the file itself in its place.",
        where=shown(name),
    )


def special_refused(name: str) -> UploadRefused:
    return UploadRefused(
        RefusalCode.ARCHIVE_SPECIAL_FILE,
        f"{shown(name)} is neither a file nor a folder (a device, a pipe, a sparse file or a part "
        "of one). Leave it out, or store it as a plain file.",
        where=shown(name),
    )


def broken(what: str) -> UploadRefused:
    return UploadRefused(
        RefusalCode.ARCHIVE_BROKEN,
        f"The archive is damaged or cut: {what}. Make it again and upload it whole.",
    )


def too_many(most: int) -> UploadRefused:
    return UploadRefused(
        RefusalCode.ARCHIVE_TOO_MANY_FILES,
        f"The archive has more than {most} entries. Two are needed: adapter_config.json and "
        "adapter_model.safetensors.",
    )


def stray_bytes() -> UploadRefused:
    return UploadRefused(
        RefusalCode.ARCHIVE_STRAY_BYTES,
        "The archive has bytes that belong to none of its files: before, between or behind them. "
        "Make it anew with zip or tar, with nothing put before or after it.",
    )


def decoded_name(raw_name: bytes) -> str:
    """Return a name in an archive as text. Raises `UploadRefused` where it is not UTF-8."""
    try:
        return raw_name.decode()
    except UnicodeDecodeError:
        raise UploadRefused(
            RefusalCode.ARCHIVE_PATH,
            "A file's name in the archive is not UTF-8. Name the files as PEFT does.",
        ) from None
