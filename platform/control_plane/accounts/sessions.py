"""Ending sessions by allauth's page."""

from collections.abc import Sequence

from allauth.core import context
from allauth.usersessions.adapter import DefaultUserSessionsAdapter
from allauth.usersessions.models import UserSession

from tenants.access.sessions import end_sessions
from tenants.models import User


class SessionsAdapter(DefaultUserSessionsAdapter):  # type: ignore[misc]
    def end_sessions(self, sessions: Sequence[UserSession]) -> None:
        request = context.request
        if isinstance(request.user, User):
            end_sessions(request.user, sessions, address=request.META.get("REMOTE_ADDR"))
