"""The operators' sign-in, with limits on guessing. The API's limits are admission's, not these."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django_ratelimit.decorators import ratelimit

# An address may try for several accounts, an account may be tried from several addresses.
ATTEMPTS_OF_AN_ADDRESS = "20/m"
ATTEMPTS_ON_AN_ACCOUNT = "10/m"
RETRY_SECONDS = 60


@ratelimit(key="ip", rate=ATTEMPTS_OF_AN_ADDRESS, method="POST", block=False)  # type: ignore[untyped-decorator]
@ratelimit(key="post:username", rate=ATTEMPTS_ON_AN_ACCOUNT, method="POST", block=False)  # type: ignore[untyped-decorator]
def operator_login(request: HttpRequest) -> HttpResponseBase:
    """The admin's own sign-in page; 429 once there were too many attempts within a minute."""
    if getattr(request, "limited", False):
        context = {"retry_seconds": RETRY_SECONDS}
        response = render(request, "too_many_attempts.html", context, status=429)
        response["Retry-After"] = str(RETRY_SECONDS)
        return response
    return admin.site.login(request)
