"""Pages that change an account ask for what is its owner's own: a session that a provider of an
organisation has opened is sent to sign in."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from tenants.access.session_proofs import proofs_of

View = Callable[..., HttpResponseBase]


def after_own_sign_in(view: View) -> View:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated and not proofs_of(request.session).is_own:
            context = {"sign_in_again": redirect_to_login(request.path).url}
            return render(request, "account/sign_on/own_sign_in_first.html", context, status=403)
        return view(request, *args, **kwargs)

    return guarded
