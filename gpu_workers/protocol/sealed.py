"""What the blob store keeps: streams of bytes sealed with AES-256-GCM, in frames of 1 MiB.

A sealed stream is a header (8 bytes that name the format, 32 of salt), then frames: each the
ciphertext of 1 MiB, the last of what is left, with 16 bytes of tag. Each stream has a key of its
own, HKDF-SHA256 (RFC 5869) of the key that is given and the salt, which opens it and no other; a
frame's nonce is its number and whether it is the last. So a frame that was changed, moved,
repeated, left out or taken from another stream does not open, nor does a stream that ends early or
goes on (the STREAM construction: Hoang, Reyhanitabar, Rogaway and Vizár, "Online
Authenticated-Encryption and its Nonce-Reuse Misuse-Resistance", CRYPTO 2015).

Memory is bounded by a frame each way, whatever the chunks that come.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES: Final = 32
FRAME_BYTES: Final = 1024 * 1024
TAG_BYTES: Final = 16
MAGIC: Final = b"PSSEAL01"
SALT_BYTES: Final = 32
HEADER_BYTES: Final = len(MAGIC) + SALT_BYTES


class SealBroken(ValueError):
    """These are not the bytes that were sealed under this key."""


def new_salt() -> bytes:
    """Return a salt for one stream."""
    return os.urandom(SALT_BYTES)


def salt_of(header: bytes) -> bytes:
    """Return the salt of a sealed stream that begins so. Raises `SealBroken`."""
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise SealBroken("This is no sealed stream: it does not begin as one.")
    return header[len(MAGIC) : HEADER_BYTES]


def stream_key(key: bytes, salt: bytes) -> bytes:
    """Return the key of the one stream that was sealed under `key` with this salt."""
    _check_length(key)
    return HKDF(SHA256(), KEY_BYTES, salt, MAGIC).derive(key)


def seal(chunks: Iterable[bytes], key: bytes, *, salt: bytes | None = None) -> Iterator[bytes]:
    """Yield what `chunks` hold, sealed under a key of 32 bytes; two seals of the same differ. A
    `salt` is a new one for each stream."""
    salt = salt or new_salt()
    cipher = AESGCM(stream_key(key, salt))
    yield MAGIC + salt
    for number, (frame, is_last) in enumerate(_frames(chunks, FRAME_BYTES)):
        yield cipher.encrypt(_nonce(number, is_last), frame, None)


def open_sealed(chunks: Iterable[bytes], key: bytes) -> Iterator[bytes]:
    """Yield what was sealed under a key, each frame once it has proven itself. Raises `SealBroken`.

    What is yielded is true, and whole only once the iteration has ended: a stream that was cut
    raises at its end.
    """
    return _opened(chunks, lambda salt: stream_key(key, salt))


def open_stream(chunks: Iterable[bytes], key: bytes) -> Iterator[bytes]:
    """Yield as `open_sealed` does, by the `stream_key` of this stream alone."""
    _check_length(key)
    return _opened(chunks, lambda _salt: key)


def _opened(chunks: Iterable[bytes], key_of: Callable[[bytes], bytes]) -> Iterator[bytes]:
    stream = iter(chunks)
    header, rest = _take(stream, HEADER_BYTES)
    cipher = AESGCM(key_of(salt_of(header)))
    frames = _frames(chain((rest,), stream), FRAME_BYTES + TAG_BYTES)
    for number, (frame, is_last) in enumerate(frames):
        try:
            yield cipher.decrypt(_nonce(number, is_last), frame, None)
        except InvalidTag:
            raise SealBroken(
                f"Frame {number} of a sealed stream is not what was sealed there under this key."
            ) from None


def sealed_size(size_bytes: int) -> int:
    """Return how many bytes a stream of `size_bytes` has once it is sealed."""
    frames = max(1, -(-size_bytes // FRAME_BYTES))
    return HEADER_BYTES + size_bytes + frames * TAG_BYTES


def _check_length(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise ValueError(f"A key has {KEY_BYTES} bytes, not {len(key)}.")


def _nonce(number: int, is_last: bool) -> bytes:
    """Return the 12 bytes that no other frame of this stream has."""
    return number.to_bytes(11, "big") + (b"\x01" if is_last else b"\x00")


def _frames(chunks: Iterable[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield frames of `size` bytes, and whether each is the last: that one has 1 to `size`, or none
    if nothing came at all."""
    held = bytearray()
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            if len(held) == size:
                yield bytes(held), False
                held.clear()
            taken = size - len(held)
            held += view[:taken]
            view = view[taken:]
    yield bytes(held), True


def _take(stream: Iterator[bytes], size: int) -> tuple[bytes, bytes]:
    """Read the first `size` bytes; return them, fewer if there are not so many, and what came with
    them beyond."""
    taken = b""
    for chunk in stream:
        missing = size - len(taken)
        taken += chunk[:missing]
        if len(taken) == size:
            return taken, chunk[missing:]
    return taken, b""
