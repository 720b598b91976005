"""An operator who acts as a member: what all pages say of it, and ending it."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from control_plane.dashboard.page import sign_in_first, signed_in
from tenants.access.acting import Acting, acting_of, end


def acting_on(request: HttpRequest) -> Acting | None:
    """Return as what the request's session acts, None for nearly all."""
    user = signed_in(request)
    return None if user is None else acting_of(request.session, user, _address(request))


@require_POST
def end_acting(request: HttpRequest) -> HttpResponse:
    user = signed_in(request)
    if user is None:
        return sign_in_first(request)
    acting = end(request.session, user, _address(request))
    if acting is None or not user.is_staff:
        return HttpResponseRedirect(reverse("dashboard:organisations"))
    return HttpResponseRedirect(reverse("admin:index"))


def _address(request: HttpRequest) -> str | None:
    return request.META.get("REMOTE_ADDR") or None
