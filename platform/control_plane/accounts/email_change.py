"""Signing in with another email address: asked for here, done by the link that goes to it.

allauth's own keeps a row for the new address and signs the row's number, so a link would prove
whatever address the row holds when it is opened. Ours proves the one it was sent to, and only to
whoever is signed in: a link that a mistyped address received is worth nothing.
"""

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.reauthentication import raise_if_reauthentication_required
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from tenants.access.account_changes import (
    BadLink,
    ask_for_email_change,
    change_email,
    email_of_link,
)
from tenants.isolation.audit_actor import address_of
from tenants.models import User


class NewEmailForm(forms.Form):
    email = forms.EmailField(
        label="New email address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )

    def __init__(self, *args: object, user: User, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._user = user

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"].strip().lower()
        if email == self._user.email:
            raise forms.ValidationError("You sign in with this address already.", code="same")
        return email


@login_required
def ask(request: HttpRequest) -> HttpResponse:
    """Ask for the new address, once the password is given, and send a link to it. The answer is the
    same for one that is taken, whose owner is told so by e-mail."""
    user = _user(request)
    raise_if_reauthentication_required(request, app="allauth.account")
    form = NewEmailForm(request.POST or None, user=user)
    if request.method == "POST" and form.is_valid():
        email = form.cleaned_data["email"]
        key = ask_for_email_change(user, email, address_of(request))
        if key is None:
            _send("account_already_exists", email, reverse("account_reset_password"))
        else:
            _send("email_change", email, reverse("account_confirm_email", args=[key]))
        return redirect("account_email_verification_sent")
    return render(request, "account/email_change.html", {"form": form})


@login_required
def confirm(request: HttpRequest, key: str) -> HttpResponse:
    """Ask whether to go on, then change the address and tell the one before."""
    user = _user(request)
    try:
        email = email_of_link(user, key)
        if request.method != "POST":
            return render(request, "account/email_confirm.html", {"new_email": email})
        before = change_email(user, key, address_of(request))
    except BadLink as error:
        return render(request, "account/email_confirm.html", {"problem": error}, status=400)
    get_adapter().send_notification_mail(
        "account/email/email_changed", user, {"from_email": before, "to_email": email}, email=before
    )
    messages.success(request, f"You sign in as {email} from now on.")
    return redirect("account")


@login_required
def sent(request: HttpRequest) -> HttpResponse:
    return render(request, "account/verification_sent.html")


def _send(template: str, email: str, path: str) -> None:
    link = f"{settings.PENSTOCK_PUBLIC_URL}{path}"
    get_adapter().send_mail(f"account/email/{template}", email, {"link": link})


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # login_required  # noqa: S101
    return request.user
