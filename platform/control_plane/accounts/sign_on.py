"""Single sign-on as pages: an address leads to its organisation's provider, and the provider leads
back.

Whoever goes to the provider does so by a form with a CSRF token, since another site may not sign
anybody in; the answer is a page that leads on. A redirect would not do: browsers check the whole
chain behind a form against the policy's form-action, which names ourselves alone.
"""

import uuid
from urllib.parse import urlsplit

from allauth.account.adapter import get_adapter
from allauth.socialaccount.adapter import get_adapter as get_social_adapter
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from control_plane.accounts.openid_connect import SignOnOAuth2Adapter
from control_plane.accounts.sign_on_completion import refuse_sign_on
from tenants.access.sign_on.configuration import provider_of
from tenants.access.sign_on.domains import tenant_of_address
from tenants.access.sign_on.refusals import SignOnRefused


class AddressForm(forms.Form):
    email = forms.EmailField(
        label="Email address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "email"}),
    )


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def ask(request: HttpRequest) -> HttpResponse:
    """Ask for the address and lead to its organisation's page. What is answered depends on its
    domain alone, whoever has an account there."""
    form = AddressForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        tenant_id = tenant_of_address(form.cleaned_data["email"])
        if tenant_id is not None:
            return redirect(_with_next(reverse("sign-on", args=[tenant_id]), _back(request)))
        form.add_error(
            "email",
            forms.ValidationError(
                "No organisation has single sign-on for this address. Sign in with your password.",
                code="no_sign_on",
            ),
        )
    context = {
        "form": form,
        "redirect_field_name": "next",
        "redirect_field_value": _back(request),
    }
    return render(request, "account/sign_on/ask.html", context)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def start(request: HttpRequest, tenant_id: uuid.UUID) -> HttpResponse:
    """Say which provider it is, and on a click lead there."""
    configuration = provider_of(tenant_id)
    if configuration is None:
        raise Http404
    back = _back(request)
    context = {
        "organisation": configuration.tenant.name,
        "provider": urlsplit(configuration.issuer).netloc,
        "redirect_field_name": "next",
        "redirect_field_value": back,
    }
    if request.method != "POST":
        return render(request, "account/sign_on/start.html", context)
    try:
        provider = get_social_adapter().get_provider(request, str(tenant_id))
        address = provider.begin(request, back=back)
    except SocialApp.DoesNotExist:
        raise Http404 from None
    except SignOnRefused as refusal:
        return refuse_sign_on(request, tenant_id, refusal.reason)
    return render(request, "account/sign_on/leaving.html", context | {"address": address})


@never_cache
@require_GET
def callback(request: HttpRequest, tenant_id: uuid.UUID) -> HttpResponse:
    """Take the provider's answer."""
    view = OAuth2CallbackView.adapter_view(SignOnOAuth2Adapter(request, str(tenant_id)))
    try:
        response: HttpResponse = view(request)
    except SocialApp.DoesNotExist:
        raise Http404 from None
    except SignOnRefused as refusal:
        return refuse_sign_on(request, tenant_id, refusal.reason)
    return response


def _back(request: HttpRequest) -> str:
    """Return the path that somebody wants to go to, empty for none or an address elsewhere."""
    given = request.POST.get("next") or request.GET.get("next") or ""
    return given if get_adapter().is_safe_url(given) else ""


def _with_next(path: str, back: str) -> str:
    return f"{path}?{urlencode({'next': back})}" if back else path
