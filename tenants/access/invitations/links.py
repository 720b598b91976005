"""The link of an invitation, and the e-mail that carries it: the only place where its token is."""

import base64
import hashlib
import secrets
import uuid
from typing import Final

from allauth.account.adapter import get_adapter
from django.conf import settings
from django.db import transaction
from django.urls import reverse

from tenants.models import Invitation
from tenants.models.invitation import LIFETIME
from tenants.names import as_mailed

_SECRET_BYTES: Final = 32
_ID_BYTES: Final = 16
_NO_MAIL: Final = "django.core.mail.backends.console.EmailBackend"


def new_token(tenant_id: uuid.UUID) -> str:
    """Return a token that can be guessed by nobody. It says whose it is, so that it is looked up
    inside that tenant's walls."""
    return base64.urlsafe_b64encode(tenant_id.bytes + secrets.token_bytes(_SECRET_BYTES)).decode()


def tenant_of(token: str) -> uuid.UUID | None:
    """Return whose a token says it is; None for what cannot be one."""
    try:
        raw = base64.b64decode(token, altchars=b"-_", validate=True)
    except ValueError:
        return None
    return uuid.UUID(bytes=raw[:_ID_BYTES]) if len(raw) == _ID_BYTES + _SECRET_BYTES else None


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def has_mail_server() -> bool:
    """Return whether e-mails with links leave this service; without one they would be in a log."""
    return settings.EMAIL_BACKEND != _NO_MAIL


def send_after_commit(invitation: Invitation, token: str) -> None:
    """Mail the link once the invitation is stored: no transaction waits for a mail server."""
    inviter = invitation.invited_by
    context = {
        "organisation": as_mailed(invitation.tenant.name),
        "inviter": "" if inviter is None else inviter.email,
        "role": invitation.role,
        "days": LIFETIME.days,
        "link": f"{settings.PENSTOCK_PUBLIC_URL}{reverse('account_invitation', args=[token])}",
    }
    email = invitation.email
    transaction.on_commit(
        lambda: get_adapter().send_mail("account/email/invitation", email, context)
    )
