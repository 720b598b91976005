"""The Content-Security-Policy of every page but the admin's, whose own scripts need more."""

from typing import Final

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
_HEADER: Final = "Content-Security-Policy"
_ADMIN: Final = "/admin/"


class ContentSecurityMiddleware(MiddlewareMixin):
    """Sets the policy where the view has set none."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        if not request.path.startswith(_ADMIN):
            response.setdefault(_HEADER, POLICY)
        return response


def restrict(response: HttpResponseBase) -> None:
    """Set the policy on a page of ours that has its address below the admin's."""
    response.headers[_HEADER] = POLICY
