"""The operators' sign-in page, with limits on guessing."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from control_plane.dashboard.content_security import restrict
from tenants.access.sign_in import RETRY_SECONDS, is_guessing


def operator_login(request: HttpRequest) -> HttpResponseBase:
    """Serve the admin's sign-in page; 429 after too many attempts within a minute."""
    if request.method == "POST" and is_guessing(request, request.POST.get("username", "")):
        context = {"retry_seconds": RETRY_SECONDS}
        response = render(request, "too_many_attempts.html", context, status=429)
        response["Retry-After"] = str(RETRY_SECONDS)
        restrict(response)
        return response
    return admin.site.login(request)
