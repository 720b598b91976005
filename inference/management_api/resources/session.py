"""Signing in and out, for people. Keys need no session.

GET     /session    whether one is open, and the CSRF token that every change has to carry
POST    /session    sign in with email address and password
DELETE  /session    sign out
"""

from typing import Annotated

from django.contrib.auth import login, logout
from django.middleware.csrf import get_token
from msgspec import Meta
from rest_framework.response import Response

from inference.errors import Unauthenticated
from inference.management_api.authentication import check_csrf, signed_in
from inference.management_api.bodies import Fields, Nothing, check_content_type, read_query
from inference.management_api.errors import TooManyAttempts
from inference.management_api.view import ManagementView
from tenants.access.sign_in import RETRY_SECONDS, is_guessing, sign_in
from tenants.models import User


class Credentials(Fields):
    email: Annotated[str, Meta(max_length=254)]
    password: Annotated[str, Meta(max_length=4096)]


class SessionView(ManagementView):
    def identify(self) -> None:
        """Require no caller, but a CSRF token: another site may not sign anybody in."""
        self.perform_content_negotiation(self.request)
        check_content_type(self.request)
        check_csrf(self.request)
        self.query = read_query(self.request, Nothing)

    def get(self) -> Response:
        return self._session(signed_in(self.request))

    def post(self) -> Response:
        credentials = self.body(Credentials)
        request = self.request._request
        if is_guessing(request, credentials.email):
            raise TooManyAttempts(
                f"Too many attempts to sign in; try again in {RETRY_SECONDS} s.",
                retry_after_seconds=RETRY_SECONDS,
            )
        user = sign_in(request, credentials.email, credentials.password)
        if user is None:
            raise Unauthenticated("Email address or password is wrong.", code="invalid_credentials")
        login(request, user)
        return self._session(user)

    def delete(self) -> Response:
        self.body(Nothing)
        logout(self.request._request)
        return Response(status=204)

    def _session(self, user: User | None) -> Response:
        return Response(
            {
                "object": "session",
                "user": None if user is None else {"email": user.email, "name": user.name},
                "csrf_token": get_token(self.request._request),
            }
        )
