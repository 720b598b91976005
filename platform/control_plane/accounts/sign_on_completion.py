"""The end of single sign-on: a session, or one plain sentence and the reason in the audit log."""

import uuid

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from control_plane.accounts.limits import too_many_attempts
from tenants.access.session_proofs import note_sign_on, proofs_of
from tenants.access.sign_in import RETRY_SECONDS, is_guessing_links
from tenants.access.sign_on.completion import complete_sign_on, note_refusal
from tenants.access.sign_on.id_token import Claims
from tenants.access.sign_on.refusals import Reason, SignOnRefused
from tenants.isolation.audit_actor import address_of
from tenants.models import SignOnConfiguration

_BACKEND = "django.contrib.auth.backends.ModelBackend"


def finish_sign_on(
    request: HttpRequest, tenant_id: uuid.UUID, claims: Claims, *, back: str | None
) -> HttpResponse:
    """Sign in whom the claims name, for that tenant; what the same person had proven in this
    browser stays. Raises `SignOnRefused`."""
    try:
        user = complete_sign_on(tenant_id, claims, address=address_of(request))
    except SignOnConfiguration.DoesNotExist:
        raise SignOnRefused(Reason.UNKNOWN_STATE) from None
    before = proofs_of(request.session) if request.user == user else None
    login(request, user, backend=_BACKEND)
    note_sign_on(
        request,
        tenant_id,
        issuer=claims.issuer,
        has_second_factor=claims.has_second_factor,
        before=before,
    )
    return redirect(back or reverse("dashboard:overview", args=[tenant_id]))


def refuse_sign_on(request: HttpRequest, tenant_id: uuid.UUID, reason: Reason) -> HttpResponse:
    """Say so in one sentence, and in the audit log why. Raises nothing, but says no more to an
    address that is refused all the time."""
    if is_guessing_links(request):
        return too_many_attempts(request, RETRY_SECONDS)
    note_refusal(tenant_id, reason, address=address_of(request))
    context = {"refusal": SignOnRefused(reason), "tenant_id": tenant_id}
    return render(request, "account/sign_on/refused.html", context, status=403)
