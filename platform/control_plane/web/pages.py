"""Whose a page is, and that it stays theirs."""

from django.db import DataError
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_vary_headers

from tenants.models import User


def private(response: HttpResponse) -> HttpResponse:
    """Keep a page out of every cache: it is one person's, and whole or a fragment."""
    response["Cache-Control"] = "no-store"
    patch_vary_headers(response, ["Cookie", "HX-Request"])
    return response


def signed_in(request: HttpRequest) -> User | None:
    """Return the session's user. A cookie that cannot be one is no session, and neither has a
    request that was refused before sessions are looked at."""
    try:
        user: object = getattr(request, "user", None)
        # Asked for its class the session is read, and its user from the database.
        return user if isinstance(user, User) and user.is_active else None
    except (DataError, ValueError):
        return None
