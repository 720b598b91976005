"""A part of an open file, read by offset: nothing in the jail has a path."""

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from inference.adapters.validation.verdicts import RefusalCode, UploadRefused

CHUNK_BYTES: Final = 4 * 1024 * 1024
# Above it zlib's window bits ask for gzip's header.
_WITH_GZIP: Final = 15


@dataclass(frozen=True)
class Span:
    """`size` bytes from `offset` on of the file behind a descriptor."""

    descriptor: int
    offset: int
    size: int

    def part(self, offset: int, size: int) -> "Span":
        """Return a part; the caller knows that it lies within."""
        return Span(self.descriptor, self.offset + offset, size)

    def read(self) -> bytes:
        """Return all bytes. Raises `UploadRefused` where the file ends before."""
        data = bytearray()
        while len(data) < self.size:
            piece = os.pread(
                self.descriptor, min(self.size - len(data), CHUNK_BYTES), self.offset + len(data)
            )
            if not piece:
                raise UploadRefused(
                    RefusalCode.ARCHIVE_BROKEN,
                    "The archive ends in the middle of a file. Upload it again, whole.",
                )
            data += piece
        return bytes(data)

    def chunks(self, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the bytes in chunks of `size`, the last one shorter."""
        for offset in range(0, self.size, size):
            yield self.part(offset, min(size, self.size - offset)).read()


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def inflate(span: Span, into: int, *, window_bits: int, most: int) -> Span:
    """Write what a deflated span holds to the end of the file behind `into`; `window_bits` as zlib
    has them. With a gzip's the members that follow the first belong to it (RFC 1952, section 2.2).
    Raises `UploadRefused` where it is more than `most` bytes, or no whole stream."""
    start = os.lseek(into, 0, os.SEEK_END)
    stream = zlib.decompressobj(window_bits)
    chunks = span.chunks()
    written = 0
    try:
        while True:
            if stream.eof:
                rest = stream.unused_data or next(chunks, b"")
                if window_bits <= _WITH_GZIP or not rest:
                    break
                stream = zlib.decompressobj(window_bits)
                data = rest
            else:
                data = stream.unconsumed_tail or next(chunks, b"")
            piece = stream.decompress(data, CHUNK_BYTES)
            if not data and not piece:
                raise _broken()
            written += len(piece)
            if written > most:
                raise UploadRefused(
                    RefusalCode.TOO_LARGE,
                    f"A file in the archive unpacks to more than {most} bytes. Train with a lower "
                    "rank or for fewer modules, or ask for more room.",
                )
            write_all(into, piece)
    except zlib.error:
        raise _broken() from None
    if rest:
        raise _broken()
    return Span(into, start, written)


def _broken() -> UploadRefused:
    return UploadRefused(
        RefusalCode.ARCHIVE_BROKEN,
        "A file in the archive cannot be unpacked: its compressed bytes are damaged, cut or "
        "followed by others. Make the archive again and upload it whole.",
    )
