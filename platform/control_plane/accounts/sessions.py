"""Ending sessions by allauth's page, with the event in the audit log."""

from collections.abc import Sequence

from allauth.core import context
from allauth.usersessions.adapter import DefaultUserSessionsAdapter
from allauth.usersessions.models import UserSession
from django.db import transaction

from tenants.audit.log import record
from tenants.isolation.audit_actor import Verb, audit_actor
from tenants.models import User


class SessionsAdapter(DefaultUserSessionsAdapter):  # type: ignore[misc]
    def end_sessions(self, sessions: Sequence[UserSession]) -> None:
        request = context.request
        if not sessions or not isinstance(request.user, User):
            return
        actor = request.user.as_actor()
        with transaction.atomic(), audit_actor(actor, request.META.get("REMOTE_ADDR")):
            super().end_sessions(sessions)
            record(Verb.SESSIONS_ENDED, request.user, sessions=len(sessions))
