"""Signing in with a password, with limits on guessing that all its doors share. The API's limits
are admission's, not these."""

from typing import Final

from django.contrib.auth import authenticate
from django.http import HttpRequest
from django_ratelimit.core import is_ratelimited

from tenants.models import User

# An address may try for several accounts, an account may be tried from several addresses.
ATTEMPTS_OF_AN_ADDRESS: Final = "20/m"
ATTEMPTS_ON_AN_ACCOUNT: Final = "10/m"
WRONG_KEYS_OF_AN_ADDRESS: Final = "20/m"
RETRY_SECONDS: Final = 60


def is_guessing(request: HttpRequest, email: str) -> bool:
    """Count an attempt to sign in; return True once there were too many within a minute."""
    account = email.strip().lower()
    # Both are counted, whatever the first says.
    counts = [
        is_ratelimited(
            request,
            group="sign-in by address",
            key=lambda _group, request: _address(request),
            rate=ATTEMPTS_OF_AN_ADDRESS,
            increment=True,
        ),
        is_ratelimited(
            request,
            group="sign-in by account",
            key=lambda _group, _request: account,
            rate=ATTEMPTS_ON_AN_ACCOUNT,
            increment=True,
        ),
    ]
    return any(counts)


def sign_in(request: HttpRequest, email: str, password: str) -> User | None:
    """Return the user whose password it is, None for a wrong one or a user who may not sign in."""
    user = authenticate(request, username=email, password=password)
    return user if isinstance(user, User) else None


def is_guessing_keys(request: HttpRequest) -> bool:
    """Return whether an address has presented too many wrong API keys within a minute."""
    return _wrong_keys(request, increment=False)


def count_wrong_key(request: HttpRequest) -> None:
    _wrong_keys(request, increment=True)


def _wrong_keys(request: HttpRequest, *, increment: bool) -> bool:
    return bool(
        is_ratelimited(
            request,
            group="wrong keys by address",
            key=lambda _group, request: _address(request),
            rate=WRONG_KEYS_OF_AN_ADDRESS,
            increment=increment,
        )
    )


def _address(request: HttpRequest) -> str:
    """Return the client's address; all clients of a Unix socket count as one."""
    return str(request.META.get("REMOTE_ADDR") or "")
