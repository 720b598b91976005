"""Addresses of blobs that lie in a folder: signed, and good until they expire. S3 signs its own."""

import hashlib
import hmac
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

# Below the public address.
ROUTE: Final = "blobs/"
_PURPOSE: Final = b"penstock.blob-address"


class FolderSigner:
    """Makes addresses below the public one. `secrets`: the present first, then those before it,
    whose addresses stay good until they expire."""

    def __init__(self, public_url: str, secrets: Sequence[str]) -> None:
        self._public_url = public_url
        self._keys = [hashlib.sha256(_PURPOSE + secret.encode()).digest() for secret in secrets]

    def __call__(self, path: str, seconds: int) -> str:
        expires = int(time.time()) + seconds
        query = urlencode(
            {"expires": expires, "signature": _signature(self._keys[0], path, str(expires))}
        )
        return f"{self._public_url}/{ROUTE}{path}?{query}"

    def is_good(self, path: str, expires: str, signature: str) -> bool:
        """Return whether this is an address of ours that has not expired. What is wrong with one
        that is not cannot be told from the time that this takes: all keys are tried, always."""
        given = signature.encode(errors="replace")
        is_ours = False
        for key in self._keys:
            is_ours |= hmac.compare_digest(_signature(key, path, expires).encode(), given)
        # Only what we have signed is read as a number.
        return is_ours and int(expires) > time.time()


def _signature(key: bytes, path: str, expires: str) -> str:
    message = f"{path}\n{expires}".encode(errors="replace")
    return hmac.new(key, message, hashlib.sha256).hexdigest()
