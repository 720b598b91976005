"""Signing in and out, for people. Keys need no session.

GET     /session    whether one is open, and the CSRF token that every change has to carry
POST    /session    sign in with email address and password
DELETE  /session    sign out
"""

from typing import Any, ClassVar, Final

from django.conf import settings
from django.contrib.auth import login, logout
from django.middleware.csrf import get_token
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.authentication import SignInAuthentication
from control_plane.management_api.errors import TooManyAttempts
from control_plane.management_api.serializers import StrictSerializer
from control_plane.management_api.viewsets import ManagementViewSet
from control_plane.records import fields
from inference.errors import Unauthenticated
from tenants.access.second_factor import CodeProblem, code_problem
from tenants.access.sign_in import (
    HOURLY_RETRY_SECONDS,
    RETRY_SECONDS,
    is_guessing,
    remember_device,
    sign_in,
)
from tenants.models import User

_CSRF_TOKEN: Final = OpenApiParameter(
    "X-CSRFToken", str, OpenApiParameter.HEADER, required=True, description="The `csrf_token`."
)


class CredentialsSerializer(StrictSerializer):
    """`code`: of an authenticator app, or a recovery code, where the account has a second
    factor."""

    email = fields.CharField(max_length=254, allow_blank=True)
    password = fields.CharField(max_length=4096, allow_blank=True)
    code = fields.CharField(max_length=40, allow_blank=True, default="")


class SessionUserSerializer(serializers.Serializer[Any]):
    email = fields.CharField(read_only=True)
    name = fields.CharField(read_only=True)


class SessionSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("session")
    user = SessionUserSerializer(read_only=True, allow_null=True)
    csrf_token = fields.CharField(read_only=True)


class SessionViewSet(ManagementViewSet):
    authentication_classes = [SignInAuthentication]
    permission_classes = [AllowAny]
    # Signing in has limits of its own, and nobody is kept from signing out.
    throttle_classes = []
    serializer_class = CredentialsSerializer
    summaries: ClassVar = {
        "retrieve": "Show the session",
        "create": "Sign in",
        "destroy": "Sign out",
    }

    @extend_schema(
        description="Takes no credential, too: then `user` is null. Sets the cookie that goes with "
        "the `csrf_token`, which every change with a session has to send.",
        responses=SessionSerializer,
    )
    def retrieve(self, request: Request) -> Response:
        user = request.user
        return _session(request, user if isinstance(user, User) else None)

    @extend_schema(
        description="Takes no credential, as it is how a person gets one; it takes the "
        "`csrf_token` of GET /api/v1/session and the cookie that came with it.",
        auth=[{}],  # type: ignore[list-item]  # the empty requirement is none
        parameters=[_CSRF_TOKEN],
        responses={200: SessionSerializer},
    )
    def create(self, request: Request) -> Response:
        credentials = self.body()
        if is_guessing(request._request, credentials["email"]):
            raise TooManyAttempts(
                f"Too many attempts to sign in; try again in {RETRY_SECONDS} s.",
                retry_after_seconds=RETRY_SECONDS,
            )
        user = sign_in(request._request, credentials["email"], credentials["password"])
        if user is None:
            raise Unauthenticated("Email address or password is wrong.", code="invalid_credentials")
        _check_second_factor(request, user, credentials["code"])
        login(request._request, user)
        response = _session(request, user)
        remember_device(response, user)
        return response

    @extend_schema(
        description="Takes no credential, too: whoever has no session stays signed out.",
        parameters=[_CSRF_TOKEN],
    )
    def destroy(self, request: Request) -> Response:
        logout(request._request)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _check_second_factor(request: Request, user: User, code: str) -> None:
    match problem := code_problem(request._request, user, code):
        case CodeProblem.MISSING:
            raise Unauthenticated(
                "This account has two-step sign-in: send a code of its authenticator app as 'code' "
                "too.",
                code=problem,
            )
        case CodeProblem.PASSKEY:
            raise Unauthenticated(
                f"This account signs in with a passkey: sign in at {settings.PENSTOCK_PUBLIC_URL}"
                "/account/login/, or send a recovery code as 'code'.",
                code=problem,
            )
        case CodeProblem.TOO_MANY:
            raise TooManyAttempts(
                "Too many codes for this account; try again in an hour.",
                retry_after_seconds=HOURLY_RETRY_SECONDS,
            )
        case CodeProblem.WRONG:
            raise Unauthenticated("The code is wrong or was used before.", code=problem)


def _session(request: Request, user: User | None) -> Response:
    session = {"user": user, "csrf_token": get_token(request._request)}
    return Response(SessionSerializer(session).data)
