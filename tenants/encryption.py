"""Secrets that have to be read again, encrypted under PENSTOCK_SECRET_KEY. What its predecessors
encrypted can be read while they are in PENSTOCK_PREVIOUS_SECRET_KEYS."""

import base64
import hashlib
from typing import Final

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

# A key for each purpose: what is encrypted for one cannot be read as the other.
SECOND_FACTOR: Final = b"penstock.second-factor"
SIGN_ON: Final = b"penstock.sign-on"
DATA_KEY: Final = b"penstock.data-key"


class SecretLost(RuntimeError):
    """It was encrypted under a key that is neither the present nor a previous one."""


def encrypt(text: str, purpose: bytes) -> bytes:
    return _cipher(purpose).encrypt(text.encode())


def decrypt(encrypted: bytes, purpose: bytes) -> str:
    """Raises `SecretLost`."""
    try:
        return _cipher(purpose).decrypt(encrypted).decode()
    except InvalidToken:
        raise SecretLost(
            "This was encrypted under another PENSTOCK_SECRET_KEY: name that in "
            "PENSTOCK_PREVIOUS_SECRET_KEYS, or enter the secret again."
        ) from None


def _cipher(purpose: bytes) -> MultiFernet:
    secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    keys = [hashlib.sha256(purpose + each.encode()).digest() for each in secrets]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys])
