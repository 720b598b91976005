"""Inviting people into a tenant, from inside. Call these in the tenant's scope.

`by` is who asks: a member, a key, or (None) an operator. Nobody invites into a role that may more
than they may themselves, and nobody touches an invitation into such a role.
"""

from typing import Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from gpu_workers.protocol.policy import Scope
from tenants.access.invitations.links import (
    digest_of,
    has_mail_server,
    new_token,
    send_after_commit,
)
from tenants.access.people import check_grant
from tenants.access.widths.rule import Principal
from tenants.errors import Conflict
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.models import (
    ApiKey,
    Cap,
    Invitation,
    InvitationState,
    Membership,
    Tenant,
    check_cap,
)
from tenants.pagination import NEWEST_FIRST, Order, Page, page
from tenants.permissions import ROLE_PERMISSIONS, Permission, Role, permissions_of

INVITATIONS_ORDER: Final = Order(name="invitations", fields=NEWEST_FIRST, is_descending=True)


def list_pending(*, limit: int, cursor: str | None = None) -> Page[Invitation]:
    """Return a page of the open scope's invitations that nobody answered, expired ones too, the
    newest first. Raises `BadCursor`."""
    rows = Invitation.objects.filter(outcome="").select_related("invited_by", "api_key")
    return page(rows, INVITATIONS_ORDER, limit=limit, cursor=cursor)


def invite(tenant: Tenant, *, email: str, role: Role, by: Principal) -> Invitation:
    """Store an invitation and mail its link, whether the address has an account or not. Raises
    `ValidationError` for a bad address, `NotPermitted`, and `Conflict` for somebody who is a member
    or is invited already, and where no e-mail can be sent; `Tenant.DoesNotExist` for a closed
    one; `CapReached` where the tier allows no more members."""
    check_can_invite()
    check_grant(role, rights_of(by))
    # Whoever closes it finds no invitation that comes after.
    tenant = Tenant.objects.select_for_update(no_key=True).get(id=tenant.id, closed_at=None)
    invitation = Invitation(tenant=tenant, email=email.strip().lower(), role=role)
    invitation.clean_fields(exclude=["digest", "expires_at"])
    _check_no_member(invitation)
    _end_expired(invitation)
    check_cap(tenant.id, Cap.MEMBERS)
    token = _vouched_for(invitation, by)
    try:
        with transaction.atomic():
            invitation.save(force_insert=True)
    except IntegrityError:
        raise Conflict(
            f"{invitation.email} has an open invitation already; send it again, or withdraw it "
            "first.",
            code="already_invited",
            param="email",
        ) from None
    send_after_commit(invitation, token)
    return invitation


def resend(invitation: Invitation, *, by: Principal) -> Invitation:
    """Mail a new link, good for seven days; those before it stop working. Whoever sends it vouches
    for it from now on. Raises as `invite` does, and `Conflict` once it was answered or
    withdrawn."""
    check_can_invite()
    # The tenant first, as accepting does.
    Tenant.objects.select_for_update(no_key=True).get(id=invitation.tenant_id)
    invitation = _locked(invitation, by)
    _check_no_member(invitation)
    if invitation.state is not InvitationState.OPEN:
        check_cap(invitation.tenant_id, Cap.MEMBERS)
    token = _vouched_for(invitation, by)
    with audited_as(Verb.RESENT):
        invitation.save(update_fields=["digest", "sent_at", "expires_at", "invited_by", "api_key"])
    send_after_commit(invitation, token)
    return invitation


def withdraw(invitation: Invitation, *, by: Principal) -> Invitation:
    """Take an invitation back: its link stops working. Raises `NotPermitted`, and `Conflict` once
    it was answered or withdrawn."""
    invitation = _locked(invitation, by)
    with audited_as(Verb.WITHDRAWN):
        invitation.end(InvitationState.WITHDRAWN)
    return invitation


def rights_of(by: Principal) -> frozenset[Permission]:
    """Return what may be granted: an operator is above the rules."""
    match by:
        case Membership():
            return ROLE_PERMISSIONS[Role(by.role)]
        case ApiKey():
            return permissions_of(map(Scope, by.scopes))
        case None:
            return ROLE_PERMISSIONS[Role.OWNER]


def _vouched_for(invitation: Invitation, by: Principal) -> str:
    """Let `by` stand behind the invitation; return its new token."""
    invitation.invited_by = by.user if isinstance(by, Membership) else None
    invitation.api_key = by if isinstance(by, ApiKey) else None
    token = new_token(invitation.tenant_id)
    invitation.renew(digest_of(token))
    return token


def _locked(invitation: Invitation, by: Principal) -> Invitation:
    """Lock an invitation that nobody answered and `by` may touch, and return it as it is now."""
    invitation = (
        Invitation.objects.select_for_update(of=("self",))
        .select_related("tenant")
        .get(id=invitation.id)
    )
    check_grant(Role(invitation.role), rights_of(by))
    if invitation.outcome:
        raise Conflict(
            f"This invitation was {invitation.outcome} already; invite the address anew.",
            code=f"invitation_{invitation.outcome}",
        )
    return invitation


def _end_expired(invitation: Invitation) -> None:
    """Make room for another invitation of the address: one that nobody answered in time."""
    now = timezone.now()
    Invitation.objects.filter(
        tenant_id=invitation.tenant_id, email=invitation.email, outcome="", expires_at__lte=now
    ).update(outcome=InvitationState.EXPIRED, ended_at=now)


def _check_no_member(invitation: Invitation) -> None:
    members = Membership.objects.filter(tenant_id=invitation.tenant_id)
    if members.filter(user__email=invitation.email).exists():
        raise Conflict(
            f"{invitation.email} is a member already; change the role instead.",
            code="already_member",
            param="email",
        )


def check_can_invite() -> None:
    """Raises `Conflict` where no e-mail can be sent."""
    if not has_mail_server():
        raise Conflict(
            "Invitations go by e-mail, and this service sends none: PENSTOCK_EMAIL_URL is not set. "
            "Ask its operator to add the member.",
            code="no_email",
        )
