"""Limits on the forms of accounts: those of `tenants.access.sign_in`, which all doors share."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from control_plane.accounts.second_factor import account_in_question
from control_plane.web.content_security import restrict
from tenants.access import sign_in
from tenants.models import User

View = Callable[..., HttpResponseBase]


def too_many_attempts(request: HttpRequest, retry_seconds: int) -> HttpResponse:
    """Answer 429 with a page that says when to return."""
    context = {"retry_seconds": retry_seconds, "retry_minutes": retry_seconds // 60}
    response = render(request, "too_many_attempts.html", context, status=429)
    response["Retry-After"] = str(retry_seconds)
    restrict(response)
    return response


def against_guessing(view: View, *, field: str = "") -> View:
    """Count each form as an attempt on the account that it names in `field`, or that is signed
    in."""

    def is_over(request: HttpRequest) -> bool:
        account = request.POST.get(field, "") if field else _account_of(request)
        return sign_in.is_guessing(request, account)

    return _limited(view, is_over, sign_in.RETRY_SECONDS)


def against_guessing_codes(view: View) -> View:
    def is_over(request: HttpRequest) -> bool:
        return sign_in.is_guessing_codes(request, account_in_question(request))

    return _limited(view, is_over, sign_in.HOURLY_RETRY_SECONDS)


def against_guessing_passkeys(view: View) -> View:
    """Count what asks for a challenge, and what answers one."""

    def is_over(request: HttpRequest) -> bool:
        if request.method == "POST":
            return sign_in.is_guessing_passkeys(request)
        return sign_in.is_asking_for_challenges(request)

    return _limited(view, is_over, sign_in.RETRY_SECONDS, methods=("GET", "HEAD", "POST"))


def against_guessing_links(view: View) -> View:
    return _limited(view, sign_in.is_guessing_links, sign_in.RETRY_SECONDS)


def against_repeated_sign_on(view: View) -> View:
    """Count what goes to a provider, and what comes back."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        is_counted = request.method == "POST" or "state" in request.GET
        if is_counted and sign_in.is_signing_on(request):
            return too_many_attempts(request, sign_in.RETRY_SECONDS)
        return view(request, *args, **kwargs)

    return guarded


def against_floods(view: View) -> View:
    """Count each form as an e-mail to the address that it names."""

    def is_over(request: HttpRequest) -> bool:
        return sign_in.is_asking_for_emails(request, request.POST.get("email", ""))

    return _limited(view, is_over, sign_in.HOURLY_RETRY_SECONDS)


def _limited(
    view: View,
    is_over: Callable[[HttpRequest], bool],
    retry_seconds: int,
    *,
    methods: tuple[str, ...] = ("POST",),
) -> View:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method in methods and is_over(request):
            return too_many_attempts(request, retry_seconds)
        was_signed_in = request.user.is_authenticated
        response = view(request, *args, **kwargs)
        if not was_signed_in and isinstance(request.user, User):
            sign_in.remember_device(response, request.user)
        return response

    return guarded


def _account_of(request: HttpRequest) -> str:
    return request.user.email if isinstance(request.user, User) else ""
