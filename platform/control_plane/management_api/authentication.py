"""Who a request speaks for, as DRF asks: the API key of its Authorization header, or else its
session. `request.auth` is the caller; `request.user` is the person, anonymous where a key asks."""

from django.contrib.auth.models import AnonymousUser
from django.db import DataError
from rest_framework import authentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request

from control_plane.management_api.callers import KeyBearer, Person
from control_plane.management_api.errors import TooManyAttempts
from control_plane.management_api.key_check import check_key
from inference.admission.caller_check import bearer_token
from inference.errors import Unauthenticated
from tenants.access.session_proofs import proofs_of
from tenants.access.sign_in import RETRY_SECONDS, count_wrong_key, is_known_wrong
from tenants.isolation.audit_actor import address_of
from tenants.models import ApiKey, User


class ApiKeyAuthentication(authentication.BaseAuthentication):
    """Whoever sends the header is judged by it alone, whatever session there is beside it."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, KeyBearer] | None:
        """Raises `Unauthenticated`, `Forbidden` and `TooManyAttempts`."""
        authorization = request.META.get("HTTP_AUTHORIZATION")
        if authorization is None:
            return None
        address = address_of(request)
        return AnonymousUser(), KeyBearer(
            key=_check(request, authorization, address), address=address
        )

    def authenticate_header(self, _request: Request) -> str:
        return "Bearer"


class SessionAuthentication(authentication.SessionAuthentication):
    """DRF's, for which a cookie that cannot be one is no session."""

    def authenticate(self, request: Request) -> tuple[User, Person] | None:
        """Raises `PermissionDenied` for a change without its CSRF token."""
        user = _signed_in(request)
        if user is None:
            return None
        self.enforce_csrf(request)
        proofs = proofs_of(request._request.session)
        return user, Person(user=user, address=address_of(request), proofs=proofs)

    def enforce_csrf(self, request: Request) -> None:
        try:
            super().enforce_csrf(request)
        except PermissionDenied as error:
            raise PermissionDenied(str(error.detail), code="csrf_failed") from None


class SignInAuthentication(SessionAuthentication):
    """Asks for the CSRF token before there is a session, too: another site may not sign anybody
    in."""

    def authenticate(self, request: Request) -> tuple[User, Person] | None:
        self.enforce_csrf(request)
        return super().authenticate(request)


def _signed_in(request: Request) -> User | None:
    try:
        user: object = request._request.user
        # Asked for its class the session is read, and its user from the database.
        return user if isinstance(user, User) and user.is_active else None
    except (DataError, ValueError):
        return None


def _check(request: Request, authorization: str, address: str | None) -> ApiKey:
    key = bearer_token(authorization)
    if is_known_wrong(request._request, key):
        raise _too_many("This API key does not work and was used too often")
    try:
        return check_key(key, address)
    except Unauthenticated:
        if count_wrong_key(request._request, key):
            raise _too_many("Too many invalid API keys from this address") from None
        raise


def _too_many(what: str) -> TooManyAttempts:
    return TooManyAttempts(
        f"{what}; try again in {RETRY_SECONDS} s.", retry_after_seconds=RETRY_SECONDS
    )
