"""The operators' sign-in page, with the limits on guessing that all doors share."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponseBase

from control_plane.accounts.limits import against_guessing


def _login(request: HttpRequest) -> HttpResponseBase:
    return admin.site.login(request)


operator_login = against_guessing(_login, field="username")
