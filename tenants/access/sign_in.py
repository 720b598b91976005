"""Signing in with a password, with limits on guessing, and on asking for e-mails, that all doors to
accounts share. The API's limits are admission's, not these."""

import uuid
from contextlib import suppress
from typing import Final

from django.contrib.auth import authenticate
from django.http import HttpRequest
from django_ratelimit.core import is_ratelimited
from redis.exceptions import RedisError

from tenants.models import User

# An address may try for several accounts, an account may be tried from several addresses.
ATTEMPTS_OF_AN_ADDRESS: Final = "20/m"
ATTEMPTS_ON_AN_ACCOUNT: Final = "10/m"
WRONG_KEYS_OF_AN_ADDRESS: Final = "20/m"
# Of a million codes; who is asked for one has given the password.
CODES_OF_AN_ACCOUNT: Final = "20/h"
# To a provider and back are two; a whole office may have one address.
SIGN_ONS_OF_AN_ADDRESS: Final = "120/m"
# Each opens a session, in which the browser's answer is expected.
PASSKEY_CHALLENGES_OF_AN_ADDRESS: Final = "40/m"
RETRY_SECONDS: Final = 60
# Forms that send an e-mail to whoever is named there.
EMAILS_ASKED_BY_AN_ADDRESS: Final = "20/h"
EMAILS_TO_AN_ACCOUNT: Final = "5/h"
INVITATIONS_OF_A_TENANT: Final = "60/h"
HOURLY_RETRY_SECONDS: Final = 3600


def is_guessing(request: HttpRequest, email: str) -> bool:
    """Count an attempt to sign in; return True once there were too many within a minute."""
    # Both are counted, whatever the first says.
    counts = [
        _is_over(request, "sign-in by address", _address(request), ATTEMPTS_OF_AN_ADDRESS),
        _is_over(request, "sign-in by account", _account(email), ATTEMPTS_ON_AN_ACCOUNT),
    ]
    return any(counts)


def is_guessing_passkeys(request: HttpRequest) -> bool:
    """Count an attempt to sign in with a passkey, beside those with passwords; return True once
    there were too many within a minute. Whose it is, only a right one says."""
    return _is_over(request, "sign-in by address", _address(request), ATTEMPTS_OF_AN_ADDRESS)


def is_asking_for_challenges(request: HttpRequest) -> bool:
    """Count a challenge for a passkey; return True once there were too many within a minute."""
    return _is_over(
        request, "challenges by address", _address(request), PASSKEY_CHALLENGES_OF_AN_ADDRESS
    )


def is_guessing_codes(request: HttpRequest, account: str) -> bool:
    """Count a code of a second factor, of the account with that id or its stand-in; return True
    once there were too many within an hour."""
    return _is_over(request, "codes of account", account, CODES_OF_AN_ACCOUNT)


def is_guessing_links(request: HttpRequest) -> bool:
    """Count an attempt to use a link that an e-mail held; return True once there were too many
    within a minute."""
    return _is_over(request, "link by address", _address(request), ATTEMPTS_OF_AN_ADDRESS)


def is_signing_on(request: HttpRequest) -> bool:
    """Count a way to a provider or back; return True once there were too many within a minute."""
    return _is_over(request, "sign-on by address", _address(request), SIGN_ONS_OF_AN_ADDRESS)


def is_asking_for_emails(request: HttpRequest, email: str) -> bool:
    """Count a form that sends an e-mail, whether the account exists or not; return True once there
    were too many within an hour."""
    counts = [
        _is_over(request, "e-mail by address", _address(request), EMAILS_ASKED_BY_AN_ADDRESS),
        _is_over(request, "e-mail to account", _account(email), EMAILS_TO_AN_ACCOUNT),
    ]
    return any(counts)


def is_inviting_too_often(request: HttpRequest, tenant_id: uuid.UUID, email: str) -> bool:
    """Count an invitation that a tenant sends; return True once there were too many within an hour,
    or too many e-mails to that address, whoever asked for them."""
    counts = [
        _is_over(request, "invitations of tenant", str(tenant_id), INVITATIONS_OF_A_TENANT),
        _is_over(request, "e-mail to account", _account(email), EMAILS_TO_AN_ACCOUNT),
    ]
    return any(counts)


def sign_in(request: HttpRequest, email: str, password: str) -> User | None:
    """Return the user whose password it is, None for a wrong one or a user who may not sign in."""
    user = authenticate(request, username=email, password=password)
    return user if isinstance(user, User) else None


def is_guessing_keys(request: HttpRequest) -> bool:
    """Return whether an address has presented too many wrong API keys within a minute. Where
    nothing can be counted it has not: nobody guesses a key, the limit is against the work."""
    with suppress(RedisError):
        return _wrong_keys(request, increment=False)
    return False


def count_wrong_key(request: HttpRequest) -> None:
    with suppress(RedisError):
        _wrong_keys(request, increment=True)


def _wrong_keys(request: HttpRequest, *, increment: bool) -> bool:
    return _is_over(
        request,
        "wrong keys by address",
        _address(request),
        WRONG_KEYS_OF_AN_ADDRESS,
        increment=increment,
    )


def _is_over(
    request: HttpRequest, group: str, key: str, rate: str, *, increment: bool = True
) -> bool:
    return bool(
        is_ratelimited(
            request,
            group=group,
            key=lambda _group, _request: key,
            rate=rate,
            increment=increment,
        )
    )


def _account(email: str) -> str:
    return email.strip().lower()


def _address(request: HttpRequest) -> str:
    """Return the client's address; all clients of a Unix socket count as one."""
    return str(request.META.get("REMOTE_ADDR") or "")
