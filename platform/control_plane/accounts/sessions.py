"""Somebody's own sessions, by allauth's page."""

from collections.abc import Sequence
from typing import Any

from allauth.core import context
from allauth.usersessions.adapter import DefaultUserSessionsAdapter
from allauth.usersessions.models import UserSession
from allauth.usersessions.views import ListUserSessionsView

from tenants.access.session_proofs import proofs_of
from tenants.access.sessions import end_sessions
from tenants.isolation.audit_actor import address_of
from tenants.models import User


class SessionsAdapter(DefaultUserSessionsAdapter):  # type: ignore[misc]
    def end_sessions(self, sessions: Sequence[UserSession]) -> None:
        """End them; none where a tenant's provider has opened the one that asks."""
        request = context.request
        if isinstance(request.user, User) and proofs_of(request.session).is_own:
            end_sessions(request.user, sessions, address=address_of(request))


class SessionList(ListUserSessionsView):  # type: ignore[misc]
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        told: dict[str, Any] = super().get_context_data(**kwargs)
        if not proofs_of(self.request.session).is_own:
            told["sessions"] = [each for each in told["sessions"] if each.is_current()]
            told["session_count"] = len(told["sessions"])
        return told
