"""An operator who acts as a member, as pages of every door show it."""

from django.http import HttpRequest

from control_plane.web.pages import signed_in
from tenants.access.impersonation import Impersonation, impersonation_of
from tenants.isolation.audit_actor import address_of


def impersonation_on(request: HttpRequest) -> Impersonation | None:
    """Return as what the request's session acts, None for nearly all."""
    user = signed_in(request)
    return None if user is None else impersonation_of(request.session, user, address_of(request))
