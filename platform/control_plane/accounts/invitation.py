"""/account/invitation/<key>/: where the link of an invitation leads. Signed in as the invited
address one accepts or declines; signed out one signs in first, or makes the account that is
missing.

Whoever holds the link has read the mail: it proves the address, as the link of a sign-up does, so
the page may say whether that address has an account.
"""

from allauth.account.utils import perform_login
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from control_plane.accounts.sign_up import NewcomerForm
from control_plane.web.pages import private, signed_in
from tenants.access.invitations.accepting import (
    InvitationRefused,
    accept,
    decline,
    read_offer,
    sign_up_invited,
)
from tenants.isolation.audit_actor import UNKNOWN_ACTOR, address_of, audit_actor
from tenants.models import Membership, User


class InvitedForm(NewcomerForm):
    """The organisation is there already."""

    organisation = None  # type: ignore[assignment]  # takes the field away


def answer(request: HttpRequest, key: str) -> HttpResponse:
    """Show what is offered, and take the answer."""
    user = signed_in(request)
    actor = UNKNOWN_ACTOR if user is None else user.as_actor()
    try:
        with audit_actor(actor, address_of(request)):
            if request.method != "POST":
                return _offer(request, key, user, InvitedForm())
            if "decline" in request.POST:
                return _declined(request, key, user)
            if user is None:
                return _signed_up(request, key)
            return _welcome(request, accept(key, user))
    except InvitationRefused as refusal:
        context = {"problem": refusal, "user": user}
        return private(render(request, "account/invitation/refused.html", context, status=400))


def _offer(
    request: HttpRequest, key: str, user: User | None, form: InvitedForm, *, status: int = 200
) -> HttpResponse:
    context = {
        "offer": read_offer(key, user),
        "user": user,
        "form": form,
        "may_sign_up": settings.PENSTOCK_SIGN_UP != "off",
    }
    return private(render(request, "account/invitation/offer.html", context, status=status))


def _signed_up(request: HttpRequest, key: str) -> HttpResponse:
    """Make the account of somebody new, where the service takes any."""
    form = InvitedForm(request.POST)
    if settings.PENSTOCK_SIGN_UP == "off":
        return _offer(request, key, None, form, status=403)
    if not form.is_valid():
        return _offer(request, key, None, form)
    try:
        membership = sign_up_invited(key, **form.cleaned_data, address=address_of(request))
    except ValidationError as error:
        form.add_error(None, error)
        return _offer(request, key, None, form)
    response: HttpResponse = perform_login(
        request,
        membership.user,
        email_verification="none",
        redirect_url=_welcome(request, membership)["Location"],
    )
    return response


def _welcome(request: HttpRequest, membership: Membership) -> HttpResponse:
    tenant = membership.tenant
    messages.success(request, f"You belong to {tenant.name} now, in the role {membership.role}.")
    return redirect("dashboard:overview", tenant.id)


def _declined(request: HttpRequest, key: str, user: User | None) -> HttpResponse:
    invitation = decline(key, user)
    messages.success(request, f"You declined the invitation to {invitation.tenant.name}.")
    return redirect("account_login" if user is None else "dashboard:organisations")
