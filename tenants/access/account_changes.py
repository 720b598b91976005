"""What people change about their own account, with its event in the audit log."""

from typing import Final

from django.core import signing
from django.db import IntegrityError, transaction
from django.utils.crypto import constant_time_compare

from tenants.audit.log import record, seal_now
from tenants.errors import Conflict
from tenants.isolation.audit_actor import UNKNOWN_ACTOR, Verb, audit_actor, audited_as
from tenants.models import User

_LINK: Final = "penstock.email-change"
LINK_SECONDS: Final = 24 * 3600


class BadLink(Conflict):
    """A link is made up, too old, used, of another account, or void since the password changed."""

    code = "bad_link"


def note_reset_request(user: User | None, address: str | None) -> None:
    """Record that somebody asked for a reset of the account's password. For no account the same is
    done and taken back, so that the time tells nobody which it was."""
    with transaction.atomic():
        with audit_actor(UNKNOWN_ACTOR, address):
            record(Verb.PASSWORD_RESET_REQUESTED, user)
        seal_now()
        if user is None:
            transaction.set_rollback(True)


def ask_for_email_change(user: User, email: str, address: str | None) -> str | None:
    """Record that the user wants to sign in with another address; return the key of the link that
    proves it, None if the address is another account's."""
    with audit_actor(user.as_actor(), address):
        record(Verb.EMAIL_CHANGE_REQUESTED, user)
    if User.objects.filter(email=email).exists():
        return None
    return signing.dumps({"user": str(user.pk), "to": email, "state": _state(user)}, salt=_LINK)


def email_of_link(user: User, key: str) -> str:
    """Return the address that a link proves to be the user's. Raises `BadLink`."""
    try:
        told = signing.loads(key, salt=_LINK, max_age=LINK_SECONDS)
        is_good = told["user"] == str(user.pk) and constant_time_compare(
            told["state"], _state(user)
        )
    except signing.BadSignature:
        is_good = False
    if not is_good:
        raise BadLink("This link is invalid, already used or expired.")
    return str(told["to"])


def change_email(user: User, key: str, address: str | None) -> str:
    """Let the user sign in with the address that the link proves; return the one before. Raises
    `BadLink`, also where the address has become another account's."""
    try:
        with transaction.atomic():
            user = User.objects.select_for_update().get(pk=user.pk)
            before, user.email = user.email, email_of_link(user, key)
            with audit_actor(user.as_actor(), address), audited_as(Verb.EMAIL_CHANGED):
                user.save(update_fields=["email"])
    except IntegrityError:
        raise BadLink("This link is invalid, already used or expired.") from None
    return before


def _state(user: User) -> str:
    """Return what a link is void without: the address and the password are those of then."""
    return signing.Signer(salt=_LINK).signature(f"{user.email}:{user.get_session_auth_hash()}")
