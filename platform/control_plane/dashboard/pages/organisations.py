"""/t/: the organisations of whoever is signed in. Somebody who has one only goes straight there."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import sign_in_first, wants_fragment
from control_plane.web.pages import private, signed_in
from tenants.access.people import tenants_of


@require_safe
def organisations(request: HttpRequest) -> HttpResponse:
    """List them; the fragment is what the switcher of the shell shows."""
    user = signed_in(request)
    if user is None:
        return sign_in_first(request)
    page = page_of(request, lambda cursor: tenants_of(user, limit=ROWS, cursor=cursor))
    is_fragment = wants_fragment(request)
    is_only = len(page.rows) == 1 and page.next_cursor is None and "cursor" not in request.GET
    if is_only and not is_fragment:
        only = page.rows[0].tenant
        return private(HttpResponseRedirect(reverse("dashboard:overview", args=[only.id])))
    name = "dashboard/organisations.html" + ("#choices" if is_fragment else "")
    return private(render(request, name, {"user": user, "page": page}))
