"""Single sign-on of a tenant: its provider, its mail domains, and what sessions have to prove."""

import uuid
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.forms import PageForm
from control_plane.dashboard.page import TenantPage
from tenants.access.sign_on.configuration import (
    MAX_SECRET_CHARACTERS,
    check_roles,
    configuration_of,
    configure,
    demand,
    remove_configuration,
    unreachable_issuer,
)
from tenants.access.sign_on.domains import (
    MAX_DOMAINS,
    add_domain,
    list_domains,
    members_in,
    remove_domain,
    texts_at,
    verify_domain,
)
from tenants.errors import Conflict
from tenants.models import MailDomain, SignOnConfiguration
from tenants.permissions import Permission, Role


class ProviderForm(PageForm):
    """The provider as its owners enter it; an empty secret leaves the one that `is_stored`."""

    issuer = forms.CharField(
        max_length=500,
        help_text="For example https://login.acme.example, as your provider names it.",
    )
    client_id = forms.CharField(label="Client id", max_length=255)
    client_secret = forms.CharField(
        label="Client secret",
        max_length=MAX_SECRET_CHARACTERS,
        required=False,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="Stored encrypted and never shown.",
    )
    role_claim = forms.CharField(
        label="Claim with roles",
        max_length=100,
        required=False,
        help_text="For example groups. Without one, roles are set here and stay.",
    )
    roles = forms.CharField(
        label="Roles by value of the claim",
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text="One a line, as platform-team = admin. The role follows at each sign-in.",
    )
    default_role = forms.ChoiceField(
        label="Role of everybody else",
        required=False,
        choices=[("", "None: they are refused"), *((role.value, role.value) for role in Role)],
    )

    def __init__(self, *args: Any, is_stored: bool, **more: Any) -> None:
        super().__init__(*args, **more)
        secret = self.fields["client_secret"]
        secret.is_optional = is_stored  # type: ignore[attr-defined]  # for its label
        if is_stored:
            secret.help_text += " Leave it empty to keep the present one of this client."
        self._is_stored = is_stored

    def clean_client_secret(self) -> str:
        secret: str = self.cleaned_data["client_secret"]
        if not secret and not self._is_stored:
            raise ValidationError("Enter the secret of this client.", code="required")
        return secret

    def clean_roles(self) -> dict[str, str]:
        roles = {}
        for line in self.cleaned_data["roles"].splitlines():
            value, equals, role = line.rpartition("=")
            if line.strip() and not equals:
                text = (
                    f"{line.strip()[:50]!r} names no role: write a line as platform-team = admin."
                )
                raise ValidationError(text)
            if line.strip():
                roles[value.strip()] = role.strip()
        try:
            check_roles(roles)
        except ValidationError as error:
            raise ValidationError(error.messages) from None
        return roles


class DemandsForm(PageForm):
    demands_sign_on = forms.BooleanField(
        label="Ask for single sign-on",
        required=False,
        help_text="Owners get in with password and two-step sign-in, too.",
    )
    demands_second_factor = forms.BooleanField(
        label="Ask for two-step sign-in",
        required=False,
        help_text="With a code of an authenticator app, or by a provider that says it asked.",
    )


class DomainForm(PageForm):
    domain = forms.CharField(
        label="Mail domain",
        max_length=260,
        help_text="What stands behind the @: acme.example. New people sign on with an address in "
        "a proven domain only.",
    )


class SignOnSection(TenantPage):
    """All of it; each form posts to an address of its own."""

    permissions: ClassVar = {"GET": Permission.VIEW_PEOPLE, "POST": Permission.WRITE_SIGN_ON}
    template_name = "dashboard/sign_on/page.html"
    section = "members"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page()

    def page(self, *, status: int = 200, **sent: PageForm) -> HttpResponse:
        """Show the page; `sent` are forms that were sent and refused."""
        stored = configuration_of(self.tenant)
        address = f"{settings.PENSTOCK_PUBLIC_URL}/sso/{self.tenant.id}/"
        forms_shown = {
            "provider": ProviderForm(initial=_as_typed(stored), is_stored=stored is not None),
            "demands": DemandsForm(
                initial={
                    "demands_sign_on": self.tenant.demands_sign_on,
                    "demands_second_factor": self.tenant.demands_second_factor,
                }
            ),
            "domain": DomainForm(),
        }
        context = {
            "stored": stored,
            "forms": forms_shown | sent,
            "domains": list_domains(limit=MAX_DOMAINS).rows,
            "sign_on_address": address,
            "callback_address": f"{address}callback",
            **self.write_access(Permission.WRITE_SIGN_ON),
        }
        return self.show(context, status=status)

    def refused(self, error: Conflict) -> HttpResponse:
        messages.error(self.request, error.message)
        return self.go_to(reverse("dashboard:sign-on", args=[self.tenant.id]))

    def done(self, sentence: str) -> HttpResponse:
        messages.success(self.request, sentence)
        return self.go_to(reverse("dashboard:sign-on", args=[self.tenant.id]))


class SignOnPage(SignOnSection):
    """The provider's form."""

    asks_first = True
    unreachable: ValidationError | None = None

    def ask_first(self, request: HttpRequest, **_: Any) -> None:
        """Look up where a new issuer leads."""
        # Whether one is stored is for `post` to look at: here no scope is open.
        form = ProviderForm(request.POST, is_stored=True)
        if form.is_valid():
            self.unreachable = unreachable_issuer(self.tenant.id, form.cleaned_data["issuer"])

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ProviderForm(request.POST, is_stored=configuration_of(self.tenant) is not None)
        if not form.is_valid() or not form.perform(
            lambda: configure(self.tenant, unreachable=self.unreachable, **form.cleaned_data)
        ):
            return self.page(provider=form, status=422)
        return self.done("The provider was saved.")


class DemandsPage(SignOnSection):
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form = DemandsForm(request.POST)
        if not form.is_valid() or not form.perform(
            lambda: demand(
                self.tenant,
                sign_on=form.cleaned_data["demands_sign_on"],
                second_factor=form.cleaned_data["demands_second_factor"],
            )
        ):
            return self.page(demands=form, status=422)
        return self.done("What is asked of sessions was saved.")


class RemoveProviderPage(SignOnSection):
    """Ask first, then forget the provider."""

    permissions: ClassVar = {"GET": Permission.WRITE_SIGN_ON, "POST": Permission.WRITE_SIGN_ON}
    template_name = "dashboard/sign_on/remove.html"

    def post(self, request: HttpRequest) -> HttpResponse:
        try:
            remove_configuration(self.tenant)
        except Conflict as error:
            return self.refused(error)
        return self.done("The provider was removed.")


class DomainsPage(SignOnSection):
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form = DomainForm(request.POST)
        if not form.is_valid() or not form.perform(
            lambda: add_domain(self.tenant, **form.cleaned_data)
        ):
            return self.page(domain=form, status=422)
        return self.done("The domain was added. Make its TXT record, then verify it.")


class VerifyDomainPage(SignOnSection):
    http_method_names = ["post"]
    asks_first = True
    texts: list[str] | Conflict

    def ask_first(self, request: HttpRequest, **ids: Any) -> None:
        """Look up the domain's records."""
        self.texts = texts_at(self.tenant.id, ids["mail_domain_id"])

    def post(self, request: HttpRequest, mail_domain_id: uuid.UUID) -> HttpResponse:
        domain = MailDomain.objects.get(id=mail_domain_id)
        try:
            verify_domain(domain, self.texts)
        except Conflict as error:
            return self.refused(error)
        return self.done(f"The domain {domain.domain} is proven.")


class RemoveDomainPage(SignOnSection):
    """Ask first, then give the domain up."""

    permissions: ClassVar = {"GET": Permission.WRITE_SIGN_ON, "POST": Permission.WRITE_SIGN_ON}
    template_name = "dashboard/sign_on/remove_domain.html"

    def get(self, request: HttpRequest, mail_domain_id: uuid.UUID) -> HttpResponse:  # type: ignore[override]  # of one domain
        domain = MailDomain.objects.get(id=mail_domain_id)
        return self.show({"domain": domain, "members": members_in(domain)})

    def post(self, request: HttpRequest, mail_domain_id: uuid.UUID) -> HttpResponse:
        domain = MailDomain.objects.get(id=mail_domain_id)
        remove_domain(domain)
        return self.done(f"The domain {domain.domain} was removed.")


def _as_typed(stored: SignOnConfiguration | None) -> dict[str, Any]:
    if stored is None:
        return {}
    return {
        "issuer": stored.issuer,
        "client_id": stored.client_id,
        "role_claim": stored.role_claim,
        "roles": "\n".join(f"{value} = {role}" for value, role in stored.roles.items()),
        "default_role": stored.default_role,
    }
