"""What django-allauth asks us: who is signing in, where mails and redirects go, what is logged."""

import smtplib
from typing import Any

import structlog
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.core.mail import EmailMessage
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from tenants.access.invitations.links import has_mail_server
from tenants.access.second_factor import has_app, has_second_factor
from tenants.access.sign_in import sign_in
from tenants.isolation.audit_actor import Verb, address_of, audit_actor, audited_as
from tenants.models import User

log = structlog.get_logger(__name__)


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    # Signing in ----------------------------------------------------------------------------------

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        return sign_in(request, credentials.get("email", ""), credentials.get("password", ""))

    def get_reauthentication_methods(self, user: User | AnonymousUser) -> list[dict[str, str]]:
        """Return how somebody confirms that it is them: whoever has a second factor, by that, and
        with passkeys alone by those before recovery codes."""
        methods: list[dict[str, str]] = super().get_reauthentication_methods(user)
        if not isinstance(user, User) or not has_second_factor(user):
            return methods
        by_factor = [each for each in methods if each["id"] != "reauthenticate"]
        return by_factor if has_app(user) else by_factor[::-1]

    def reauthenticate(self, user: User, password: str) -> bool:
        return sign_in(context.request, user.email, password) == user

    def respond_user_inactive(self, request: HttpRequest, user: User) -> HttpResponse:
        return redirect("account_login")

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the address that the edge has set; no header says it here."""
        return address_of(request) or ""

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("account")

    def is_ajax(self, request: HttpRequest) -> bool:
        """Answer with pages only: programs have the API."""
        return False

    def is_safe_url(self, url: str | None) -> bool:
        """Return whether `next` is a path of ours: whole addresses are not taken."""
        return url_has_allowed_host_and_scheme(url, allowed_hosts=None)

    # Passwords -----------------------------------------------------------------------------------

    def set_password(self, user: User, password: str) -> None:
        request = context.request
        is_reset = not request.user.is_authenticated
        verb = Verb.PASSWORD_RESET if is_reset else Verb.PASSWORD_CHANGED
        with (
            transaction.atomic(),
            audit_actor(user.as_actor(), self.get_client_ip(request)),
            audited_as(verb),
        ):
            user.set_password(password)
            user.save(update_fields=["password"])

    # E-mails -------------------------------------------------------------------------------------

    def get_reset_password_from_key_url(self, key: str) -> str:
        """Return the link under the public address, whatever host the request named."""
        uid, _, token = key.partition("-")
        path = reverse("account_reset_password_from_key", kwargs={"uidb36": uid, "key": token})
        return f"{settings.PENSTOCK_PUBLIC_URL}{path}"

    def render_mail(self, *args: Any, **kwargs: Any) -> EmailMessage:
        message: EmailMessage = super().render_mail(*args, **kwargs)
        message.extra_headers["Auto-Submitted"] = "auto-generated"
        return message

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Send an e-mail, or log why it was not sent: the page says the same either way, and a link
        never reaches the log."""
        if not has_mail_server():
            log.warning("account_email_not_sent", problem="PENSTOCK_EMAIL_URL is not set")
            return
        told = {**context, "email": email, "public_url": settings.PENSTOCK_PUBLIC_URL}
        try:
            # allauth's own would name the host of the request, and commands have none.
            self.render_mail(template_prefix, email, told).send()
        except (smtplib.SMTPException, OSError) as error:
            # Its text may hold the address.
            log.warning("account_email_not_sent", problem=type(error).__name__)
