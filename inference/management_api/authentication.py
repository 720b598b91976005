"""Who a request speaks for: the API key of its Authorization header, or else its session."""

from django.db import DataError
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request

from inference.admission.caller_check import bearer_token
from inference.errors import Unauthenticated
from inference.management_api.callers import Caller, KeyBearer, Person
from inference.management_api.errors import TooManyAttempts
from inference.management_api.key_check import check_key
from tenants.access.sign_in import RETRY_SECONDS, count_wrong_key, is_guessing_keys
from tenants.models import ApiKey, User


def authenticate(request: Request) -> Caller:
    """Return who is calling. Raises `Unauthenticated`, `Forbidden`, `TooManyAttempts`, and DRF's
    `PermissionDenied` for a session that changes something without its CSRF token."""
    address = address_of(request)
    authorization = request.META.get("HTTP_AUTHORIZATION")
    if authorization is not None:
        return KeyBearer(key=_check(request, authorization, address), address=address)
    user = signed_in(request)
    if user is None:
        raise Unauthenticated(
            "Sign in, or send the header `Authorization: Bearer <key>`.", code="not_signed_in"
        )
    check_csrf(request)
    return Person(user=user, address=address)


def signed_in(request: Request) -> User | None:
    """Return the session's user. A cookie that cannot be one is no session."""
    try:
        user: object = request._request.user
        # Asked for its class the session is read, and its user from the database.
        return user if isinstance(user, User) and user.is_active else None
    except (DataError, ValueError):
        return None


def check_csrf(request: Request) -> None:
    """Check the CSRF token as Django does for pages: its middleware leaves that to DRF's views."""
    SessionAuthentication().enforce_csrf(request)


def address_of(request: Request) -> str | None:
    """Return the client's address. Proxies are the server's business: none of their headers is
    read here."""
    return request.META.get("REMOTE_ADDR") or None


def _check(request: Request, authorization: str, address: str | None) -> ApiKey:
    if is_guessing_keys(request._request):
        raise TooManyAttempts(
            f"Too many invalid API keys from this address; try again in {RETRY_SECONDS} s.",
            retry_after_seconds=RETRY_SECONDS,
        )
    try:
        return check_key(bearer_token(authorization), address)
    except Unauthenticated:
        count_wrong_key(request._request)
        raise
