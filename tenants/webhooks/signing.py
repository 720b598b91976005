"""Secrets of endpoints, and the headers of the Standard Webhooks specification
(github.com/standard-webhooks/standard-webhooks, 1.0.0).

A secret is derived and never stored: HMAC-SHA256 under the service's own secret of the endpoint's
id and its salt. Whoever reads the database, or a backup of it, can sign nothing. A digest of eight
bytes tells which of the service's secrets, the present or an earlier one, it was made with.
"""

import base64
import hashlib
import hmac
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from django.conf import settings
from standardwebhooks import Webhook

SALT_BYTES: Final = 32
_PREFIX: Final = "whsec_"


class SecretLost(RuntimeError):
    """The service's own secret has changed, and the one before it is not among the previous."""


@dataclass(frozen=True)
class Secret:
    """32 bytes; whoever holds them can sign."""

    key: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """Return the secret as the receiver's library takes it."""
        return _PREFIX + base64.b64encode(self.key).decode()

    @property
    def check_digest(self) -> bytes:
        return hashlib.sha256(b"penstock webhook check\x00" + self.key).digest()[:8]


def new_salt() -> bytes:
    return secrets.token_bytes(SALT_BYTES)


def new_secret(endpoint_id: uuid.UUID, salt: bytes) -> Secret:
    """Derive a secret under the service's present one."""
    return _derive(settings.SECRET_KEY, endpoint_id, salt)


def derive_secret(endpoint_id: uuid.UUID, salt: bytes, check_digest: bytes) -> Secret:
    """Derive the secret that was made, maybe under an earlier secret of the service. Raises
    `SecretLost`."""
    for master in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        secret = _derive(master, endpoint_id, salt)
        if hmac.compare_digest(secret.check_digest, check_digest):
            return secret
    raise SecretLost(
        "This endpoint's secret was made under another PENSTOCK_SECRET_KEY: name that in "
        "PENSTOCK_PREVIOUS_SECRET_KEYS, or rotate the endpoint's secret."
    )


def signed_headers(
    body: str, *, message_id: str, now: datetime, signed_with: Sequence[Secret]
) -> dict[str, str]:
    """Return the three headers of a delivery, with a signature for each secret."""
    moment = now.astimezone(UTC)
    signatures = [Webhook(secret.key).sign(message_id, moment, body) for secret in signed_with]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def _derive(master: str, endpoint_id: uuid.UUID, salt: bytes) -> Secret:
    message = b"penstock webhook secret\x00" + endpoint_id.bytes + salt
    return Secret(hmac.digest(master.encode(), message, "sha256"))
