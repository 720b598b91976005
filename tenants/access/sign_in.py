"""Signing in with a password, with limits on guessing, and on asking for e-mails, that all doors to
accounts share. The API's limits are admission's, not these.

Nobody is locked out by what a stranger does: a browser that has signed in to an account before is
known by a cookie and counted by itself; of all others each network is counted by itself, too.
"""

import hashlib
import ipaddress
import secrets
import uuid
from contextlib import suppress
from typing import Final

from django.conf import settings
from django.contrib.auth import authenticate
from django.core import signing
from django.http import HttpRequest, HttpResponseBase
from django.utils.crypto import salted_hmac
from django_ratelimit.core import is_ratelimited
from redis.exceptions import RedisError

from tenants.isolation.audit_actor import address_of
from tenants.models import User

# A network (an address, or a /64 of IPv6, which one host may have) may try for several accounts, an
# account may be tried from several networks.
ATTEMPTS_OF_A_NETWORK: Final = "20/m"
ATTEMPTS_ON_AN_ACCOUNT_OF_A_NETWORK: Final = "10/m"
ATTEMPTS_ON_AN_ACCOUNT: Final = "30/m"
ATTEMPTS_OF_A_DEVICE: Final = "10/m"
WRONG_KEYS_OF_A_NETWORK: Final = "20/m"
USES_OF_A_WRONG_KEY: Final = "5/m"
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

_DEVICE: Final = "penstock_device"
_DEVICE_SECONDS: Final = 180 * 24 * 3600
_SHORTEST_NETWORK: Final = 64


def is_guessing(request: HttpRequest, email: str) -> bool:
    """Count an attempt to sign in; return True once there were too many within a minute."""
    account, network = _account(email), _network(request)
    if device := _device(request, account):
        return _is_over(request, "sign-in by device", device, ATTEMPTS_OF_A_DEVICE)
    place = f"{network} {account}"
    # Both are counted, whatever the first says.
    counts = [
        _is_over(request, "sign-in by address", network, ATTEMPTS_OF_A_NETWORK),
        _is_over(request, "sign-in by place", place, ATTEMPTS_ON_AN_ACCOUNT_OF_A_NETWORK),
    ]
    # What one network tries too often does not count against the account.
    return any(counts) or _is_over(request, "sign-in by account", account, ATTEMPTS_ON_AN_ACCOUNT)


def remember_device(response: HttpResponseBase, user: User) -> None:
    """Let the browser that this answers be known for one in which the user has signed in."""
    named = {"account": _mark(_account(user.email)), "device": secrets.token_urlsafe(16)}
    response.set_cookie(
        _DEVICE,
        signing.dumps(named, salt=_DEVICE),
        max_age=_DEVICE_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def is_guessing_passkeys(request: HttpRequest) -> bool:
    """Count an attempt to sign in with a passkey, beside those with passwords; return True once
    there were too many within a minute. Whose it is, only a right one says."""
    return _is_over(request, "sign-in by address", _network(request), ATTEMPTS_OF_A_NETWORK)


def is_asking_for_challenges(request: HttpRequest) -> bool:
    """Count a challenge for a passkey; return True once there were too many within a minute."""
    return _is_over(
        request, "challenges by address", _network(request), PASSKEY_CHALLENGES_OF_AN_ADDRESS
    )


def is_guessing_codes(request: HttpRequest, account: str) -> bool:
    """Count a code of a second factor, of the account with that id or its stand-in; return True
    once there were too many within an hour."""
    return _is_over(request, "codes of account", account, CODES_OF_AN_ACCOUNT)


def is_guessing_links(request: HttpRequest) -> bool:
    """Count an attempt to use a link that an e-mail held; return True once there were too many
    within a minute."""
    return _is_over(request, "link by address", _network(request), ATTEMPTS_OF_A_NETWORK)


def is_signing_on(request: HttpRequest) -> bool:
    """Count a way to a provider or back; return True once there were too many within a minute."""
    return _is_over(request, "sign-on by address", _network(request), SIGN_ONS_OF_AN_ADDRESS)


def is_asking_for_emails(request: HttpRequest, email: str) -> bool:
    """Count a form that sends an e-mail, whether the account exists or not; return True once there
    were too many within an hour."""
    counts = [
        _is_over(request, "e-mail by address", _network(request), EMAILS_ASKED_BY_AN_ADDRESS),
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


def is_known_wrong(request: HttpRequest, key: str) -> bool:
    """Return whether this very API key was refused too often within a minute. Where nothing can be
    counted it was not: nobody guesses a key, the limit is against the work."""
    with suppress(RedisError):
        return _uses_of_wrong_key(request, key, increment=False)
    return False


def count_wrong_key(request: HttpRequest, key: str) -> bool:
    """Count a use of an API key that does not work; return True once its network had too many
    within a minute. A key of the same network that works is not held up by that."""
    with suppress(RedisError):
        _uses_of_wrong_key(request, key, increment=True)
        return _is_over(
            request, "wrong keys by address", _network(request), WRONG_KEYS_OF_A_NETWORK
        )
    return False


def _uses_of_wrong_key(request: HttpRequest, key: str, *, increment: bool) -> bool:
    fingerprint = hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()
    return _is_over(request, "wrong keys", fingerprint, USES_OF_A_WRONG_KEY, increment=increment)


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


def _device(request: HttpRequest, account: str) -> str:
    """Return the name of a browser in which somebody has signed in to the account before, else
    nothing."""
    try:
        named = signing.loads(
            request.COOKIES.get(_DEVICE, ""), salt=_DEVICE, max_age=_DEVICE_SECONDS
        )
    except signing.BadSignature:
        return ""
    return str(named["device"]) if named["account"] == _mark(account) else ""


def _mark(account: str) -> str:
    return salted_hmac(_DEVICE, account).hexdigest()


def _network(request: HttpRequest) -> str:
    """Return the client's network; all clients of a Unix socket count as one."""
    text = (address_of(request) or "").partition("%")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _SHORTEST_NETWORK), strict=False))
