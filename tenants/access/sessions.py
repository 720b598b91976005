"""The sessions of people, whichever door they came by: listed for them, and ended all at once."""

import ipaddress
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_added
from allauth.usersessions.models import UserSession
from django.contrib.sessions.backends.base import SessionBase
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from tenants.access.second_factor import KINDS
from tenants.access.session_proofs import proofs_of
from tenants.audit.log import record
from tenants.isolation.audit_actor import Verb, address_of, audit_actor
from tenants.models import User
from tenants.pagination import Order, Page, page

SESSIONS_ORDER: Final = Order(
    name="sessions",
    fields={"created_at": datetime.fromisoformat, "id": int},
    is_descending=True,
)

# Of a connection that has no address, such as a Unix socket.
NO_ADDRESS: Final = "::"
_USER_AGENT_CHARACTERS: Final = 200


def note_session(request: HttpRequest, user: User) -> None:
    """Note where a session was opened, and with which browser, for its owner to recognise it."""
    if request.session.session_key is None:
        request.session.save()
    told: dict[str, Any] = {
        "user": user,
        "ip": _address(request),
        "user_agent": request.META.get("HTTP_USER_AGENT", "")[:_USER_AGENT_CHARACTERS],
    }
    UserSession.objects.update_or_create(session_key=request.session.session_key, defaults=told)


def forget_session(request: HttpRequest) -> None:
    """Forget a session that is about to end."""
    UserSession.objects.filter(session_key=request.session.session_key).delete()


def sessions_of(user: User, session: SessionBase) -> "QuerySet[UserSession]":
    """Return the sessions that this one, of the same user, may list and end: its own alone where a
    tenant's provider has opened it, which has no say in the account."""
    rows: QuerySet[UserSession] = UserSession.objects.filter(user=user)
    return rows if proofs_of(session).is_own else rows.filter(session_key=session.session_key)


def list_sessions(
    sessions: "QuerySet[UserSession]",
    *,
    search: str | None = None,
    limit: int,
    cursor: str | None = None,
) -> Page[UserSession]:
    """Return a page of these sessions, the newest first; `search` is a part of the browser's name.
    What has ended by itself is forgotten, so that a page may be short. Raises `BadCursor`."""
    rows = sessions.filter(user_agent__icontains=search or "")
    found = page(rows, SESSIONS_ORDER, limit=limit, cursor=cursor)
    return replace(found, rows=[session for session in found.rows if not session.purge()])


def end_sessions(user: User, sessions: Sequence[UserSession], *, address: str | None) -> None:
    """End sessions of the user, who asks for it from that address, with an event in the audit
    log."""
    if not sessions:
        return
    with transaction.atomic(), audit_actor(user.as_actor(), address):
        for session in sessions:
            session.end()
        record(Verb.SESSIONS_ENDED, user, sessions=len(sessions))


def connect() -> None:
    """End what was opened without a second factor, once somebody has one."""
    authenticator_added.connect(_added, dispatch_uid="sessions")


def _added(*, request: HttpRequest, user: User, authenticator: Authenticator, **_: Any) -> None:
    factors = Authenticator.objects.filter(user=user, type__in=KINDS)
    if authenticator.type in KINDS and factors.count() == 1:
        rows = UserSession.objects.filter(user=user)
        others = list(rows.exclude(session_key=request.session.session_key))
        end_sessions(user, others, address=address_of(request))


def _address(request: HttpRequest) -> str:
    text = (address_of(request) or "").partition("%")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return NO_ADDRESS
