"""The format of API keys: `pk-<public id>-<secret><checksum>`. Pure functions, no Django.

The public id (16 of a-z0-9) finds the key, the secret (160 bits as 32 base32 letters) proves it,
the checksum (6 hex digits of the CRC-32 of all before it) lets a mistyped key be told from a wrong
one without a look-up. Only the HMAC-SHA256 of the whole key is ever stored.
"""

import base64
import hashlib
import hmac
import re
import secrets
import string
import zlib
from dataclasses import dataclass

PREFIX = "pk"
PUBLIC_ID_LENGTH = 16
SECRET_BYTES = 20
CHECKSUM_LENGTH = 6

# Also what a secret scanner should look for.
PATTERN = re.compile(r"pk-([a-z0-9]{16})-([a-z2-7]{32})([0-9a-f]{6})", re.ASCII)

_PUBLIC_ID_ALPHABET = string.ascii_lowercase + string.digits


class MalformedApiKey(ValueError):
    """Not a key of ours: another format, or a typing error that the checksum caught."""


@dataclass(frozen=True, kw_only=True)
class ParsedApiKey:
    """The parts of a key that may be shown and stored."""

    public_id: str
    last_four: str


def generate(public_id: str | None = None) -> str:
    """Return a fresh key, or a fresh secret under the public id of a key that is rotated. Whoever
    calls this must show it once and keep only its digest."""
    return assemble(public_id or new_public_id(), secrets.token_bytes(SECRET_BYTES))


def new_public_id() -> str:
    return "".join(secrets.choice(_PUBLIC_ID_ALPHABET) for _ in range(PUBLIC_ID_LENGTH))


def assemble(public_id: str, secret: bytes) -> str:
    """Return the key of these parts; the secret has `SECRET_BYTES` bytes."""
    body = f"{PREFIX}-{public_id}-{base64.b32encode(secret).decode().lower()}"
    return body + _checksum(body)


def parse(key: str) -> ParsedApiKey:
    """Take a key apart; raises `MalformedApiKey`, whose text never repeats the key."""
    match = PATTERN.fullmatch(key)
    if match is None:
        raise MalformedApiKey("Penstock keys look like pk-<16 characters>-<38 characters>")
    if not hmac.compare_digest(_checksum(key[:-CHECKSUM_LENGTH]), match[3]):
        raise MalformedApiKey("its checksum does not match, so it may be mistyped")
    return ParsedApiKey(public_id=match[1], last_four=key[-4:])


def digest(key: str, pepper: bytes) -> bytes:
    """Return what is stored of a key: HMAC-SHA256 of the whole key under the deployment's
    pepper."""
    return hmac.new(pepper, key.encode(), hashlib.sha256).digest()


def is_genuine(key: str, secret_digest: bytes, pepper: bytes) -> bool:
    """Return whether a key has the stored digest, compared in constant time."""
    return hmac.compare_digest(digest(key, pepper), secret_digest)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"[-CHECKSUM_LENGTH:]
