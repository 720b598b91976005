"""The credentials that the API takes, as OpenAPI has them."""

from typing import Any, Final

from django.conf import settings
from drf_spectacular.drainage import warn
from rest_framework.authentication import BaseAuthentication

from control_plane.management_api.authentication import ApiKeyAuthentication, SessionAuthentication

API_KEY: Final = "apiKey"
SESSION: Final = "session"
CSRF_TOKEN: Final = "csrfToken"  # noqa: S105 - a name

SCHEMES: Final[dict[str, dict[str, Any]]] = {
    API_KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, pk-<16>-<38>: `Authorization: Bearer $PENSTOCK_API_KEY`.",
    },
    SESSION: {
        "type": "apiKey",
        "in": "cookie",
        "name": settings.SESSION_COOKIE_NAME,
        "description": "The session of a person: the cookie that POST /api/v1/session sets.",
    },
    CSRF_TOKEN: {
        "type": "apiKey",
        "in": "header",
        "name": "X-CSRFToken",
        "description": "With a session, for every change: the `csrf_token` of GET /api/v1/session. "
        "It goes with the cookie that came with it.",
    },
}


def requirement(authenticator: BaseAuthentication, method: str) -> dict[str, list[str]]:
    """Return what an authentication class asks for: of a session, for a change, its CSRF token as
    well."""
    if isinstance(authenticator, ApiKeyAuthentication):
        return {API_KEY: []}
    if isinstance(authenticator, SessionAuthentication):
        return {SESSION: []} if method == "GET" else {SESSION: [], CSRF_TOKEN: []}
    warn(f"tell what {type(authenticator).__name__} asks for, in description/security.py")
    return {}
