"""Signing up as pages: first the address, then, by the link that goes to it, account and tenant.

allauth's own makes the account before the address is proven: whoever signs up with another's
address chooses the password of the account that the other one confirms. Here nothing is stored
till then.
"""

from allauth.account.adapter import get_adapter
from allauth.account.utils import perform_login
from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from tenants.access.account_changes import BadLink
from tenants.access.sign_up import Newcomer, Terms, ask_to_sign_up, email_of_link, sign_up
from tenants.errors import Conflict
from tenants.isolation.audit_actor import address_of

_CLOSED = {
    "invited": "New accounts are by invitation. Ask a member of your organisation for one.",
    "off": "This service takes no new accounts.",
}


class AddressForm(forms.Form):
    email = forms.EmailField(
        label="Email address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )


class NewcomerForm(forms.Form):
    name = forms.CharField(
        label="Your name",
        max_length=200,
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    organisation = forms.CharField(
        label="Organisation",
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "organization"}),
    )
    password = forms.CharField(
        label="Password",
        strip=False,
        help_text="At least 12 characters.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


def ask(request: HttpRequest) -> HttpResponse:
    """Ask for the address and send a link to it. The answer is the same for one that has an
    account, whose owner is told so by e-mail."""
    if refused := _refusal(request):
        return refused
    form = AddressForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        email = form.cleaned_data["email"].strip().lower()
        key = ask_to_sign_up(email)
        if key is None:
            _send("account_already_exists", email, reverse("account_reset_password"))
        else:
            _send("sign_up", email, reverse("account_finish_signup", args=[key]))
        return redirect("account_signup_sent")
    return render(request, "account/signup.html", {"form": form})


def sent(request: HttpRequest) -> HttpResponse:
    return _refusal(request) or render(request, "account/verification_sent.html")


def finish(request: HttpRequest, key: str) -> HttpResponse:
    """Ask for the rest, then make account and tenant and sign in."""
    if refused := _refusal(request):
        return refused
    form = NewcomerForm(request.POST or None)
    try:
        email = email_of_link(key)
        if request.method == "POST" and form.is_valid():
            user = sign_up(
                key, Newcomer(**form.cleaned_data), _terms(), address=address_of(request)
            )
            response: HttpResponse = perform_login(request, user, email_verification="none")
            return response
    except BadLink as error:
        return render(request, "account/signup_closed.html", {"problem": error}, status=400)
    except Conflict as error:
        form.add_error(error.param, error.message)
    except ValidationError as error:
        form.add_error(None, error)
    return render(request, "account/signup_finish.html", {"form": form, "email": email})


def _refusal(request: HttpRequest) -> HttpResponse | None:
    if settings.PENSTOCK_SIGN_UP == "open":
        return redirect("account") if request.user.is_authenticated else None
    context = {"problem": _CLOSED[settings.PENSTOCK_SIGN_UP]}
    return render(request, "account/signup_closed.html", context, status=403)


def _terms() -> Terms:
    return Terms(
        tier=settings.PENSTOCK_SIGN_UP_TIER, credit_nanos=settings.PENSTOCK_SIGN_UP_CREDIT_NANOS
    )


def _send(template: str, email: str, path: str) -> None:
    link = f"{settings.PENSTOCK_PUBLIC_URL}{path}"
    get_adapter().send_mail(f"account/email/{template}", email, {"link": link})
