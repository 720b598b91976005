"""Invitations as their readers know them: by the link in the e-mail."""

from datetime import timedelta

from django.core import mail
from django.utils import timezone

from tenants.access.invitations.inviting import invite
from tenants.access.invitations.links import digest_of, new_token
from tenants.access.widths.rule import Principal
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import Invitation, Tenant
from tenants.permissions import Role
from tests.support.accounts.browser import link_in_mail

EMAIL = "carol@initech.example"


def invited(
    tenant: Tenant, *, email: str = EMAIL, role: Role = Role.DEVELOPER, by: Principal = None
) -> tuple[Invitation, str]:
    """An open invitation with the token of its link, without the e-mail."""
    with tenant_scope(tenant.id):
        invitation = invite(tenant, email=email, role=role, by=by)
        token = new_token(tenant.id)
        Invitation.objects.filter(id=invitation.id).update(digest=digest_of(token))
    return invitation, token


def link_of(token: str) -> str:
    return f"/account/invitation/{token}/"


def token_in_mail(number: int = -1) -> str:
    """The token of the link in one of the e-mails sent, the last one by default."""
    return link_in_mail(number).split("/")[-2]


def mails_to(email: str) -> int:
    return sum(message.to == [email] for message in mail.outbox)


def expire(invitation: Invitation) -> None:
    with operator_scope("test"):
        past = timezone.now() - timedelta(seconds=1)
        Invitation.objects.filter(id=invitation.id).update(expires_at=past)
