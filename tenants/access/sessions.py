"""The sessions of people, whichever door they came by: listed for them, and ended all at once."""

import ipaddress
from typing import Any, Final

from allauth.usersessions.models import UserSession
from django.http import HttpRequest

from tenants.models import User

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


def _address(request: HttpRequest) -> str:
    text = str(request.META.get("REMOTE_ADDR") or "").partition("%")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return NO_ADDRESS
