"""An operator who acts as a member: what all pages say of it, and ending it."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from control_plane.dashboard.page import sign_in_first
from control_plane.web.pages import signed_in
from tenants.access.impersonation import end
from tenants.isolation.audit_actor import address_of


@require_POST
def end_impersonation(request: HttpRequest) -> HttpResponse:
    user = signed_in(request)
    if user is None:
        return sign_in_first(request)
    acting = end(request.session, user, address_of(request))
    if acting is None or not user.is_staff:
        return HttpResponseRedirect(reverse("dashboard:organisations"))
    return HttpResponseRedirect(reverse("admin:index"))
