"""What the link of an invitation does: the one who holds it comes from outside of the tenant.

An invitation is accepted by the account of the invited address, once. The token opens the walls of
the tenant that it names, and nothing is found there by any other. A refusal is on record in that
tenant's audit log, with the reason and without names.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.access.invitations.inviting import rights_of
from tenants.access.invitations.links import digest_of, tenant_of
from tenants.access.sign_up import new_account
from tenants.audit.hourly import is_first_in_an_hour
from tenants.audit.log import record
from tenants.errors import Conflict
from tenants.isolation.audit_actor import Verb, audit_actor, audited_as
from tenants.isolation.scoping import tenant_scope
from tenants.models import ApiKey, Invitation, InvitationState, Membership, Tenant, User
from tenants.permissions import Permission, Role, may_grant


class Refusal(StrEnum):
    """Why a link does not let somebody in."""

    UNKNOWN = "invitation_unknown"
    ANOTHERS = "invitation_of_another"
    ACCEPTED = "invitation_accepted"
    DECLINED = "invitation_declined"
    WITHDRAWN = "invitation_withdrawn"
    EXPIRED = "invitation_expired"
    NOT_VOUCHED_FOR = "inviter_may_not"
    SUSPENDED = "tenant_suspended"
    MEMBER = "already_member"
    HAS_ACCOUNT = "has_account"


_SENTENCES: Final = {
    Refusal.UNKNOWN: "This invitation link is incomplete, or a newer one has replaced it.",
    Refusal.ANOTHERS: "This invitation was sent to another email address than yours.",
    Refusal.ACCEPTED: "This invitation was used already.",
    Refusal.DECLINED: "This invitation was declined.",
    Refusal.WITHDRAWN: "This invitation was withdrawn.",
    Refusal.EXPIRED: "This invitation has expired; ask for a new one.",
    Refusal.NOT_VOUCHED_FOR: "Whoever sent this invitation may no longer invite people; ask for a "
    "new one.",
    Refusal.SUSPENDED: "This organisation is suspended; try again once it is active.",
    Refusal.MEMBER: "You are a member of this organisation already.",
    Refusal.HAS_ACCOUNT: "This address has an account; sign in to accept the invitation.",
}


class InvitationRefused(Conflict):
    def __init__(self, reason: Refusal) -> None:
        super().__init__(_SENTENCES[reason], code=reason.value)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What whoever holds the link is asked. `inviter` is an email address, empty for a key and the
    operator."""

    organisation: str
    email: str
    role: Role
    inviter: str
    has_account: bool


def read_offer(token: str, user: User | None) -> Offer:
    """Return what the link offers; `user` is who is signed in. Raises `InvitationRefused` wherever
    accepting would."""
    with _opened(token, user, is_change=False) as invitation:
        _check_acceptable(invitation, user)
        inviter = invitation.invited_by
        return Offer(
            organisation=invitation.tenant.name,
            email=invitation.email,
            role=Role(invitation.role),
            inviter="" if inviter is None else inviter.email,
            has_account=User.objects.filter(email=invitation.email).exists(),
        )


def accept(token: str, user: User) -> Membership:
    """Make the user a member in the role that was offered. Raises `InvitationRefused`."""
    with _opened(token, user) as invitation:
        return _join(invitation, user)


def decline(token: str, user: User | None) -> Invitation:
    """Turn the offer down. Raises `InvitationRefused`."""
    with _opened(token, user) as invitation:
        with audited_as(Verb.DECLINED):
            invitation.end(InvitationState.DECLINED)
        return invitation


def sign_up_invited(token: str, *, name: str, password: str, address: str | None) -> Membership:
    """Make an account of the invited address, which the link has proven, and a member of it: both
    or nothing. Raises `InvitationRefused`, and `ValidationError` for a bad name or password."""
    with _opened(token, None) as invitation:
        if User.objects.filter(email=invitation.email).exists():
            raise InvitationRefused(Refusal.HAS_ACCOUNT)
        user = new_account(invitation.email, name=name, password=password)
        with audit_actor(user.as_actor(), address):
            try:
                with transaction.atomic():
                    user.save()
            except IntegrityError:
                # The address signed up elsewhere at the same time.
                raise InvitationRefused(Refusal.HAS_ACCOUNT) from None
            record(Verb.SIGNED_UP, user, tenant_id=invitation.tenant_id)
            return _join(invitation, user)


def _join(invitation: Invitation, user: User) -> Membership:
    _check_acceptable(invitation, user)
    with audited_as(Verb.ACCEPTED):
        invitation.end(InvitationState.ACCEPTED)
    membership, is_new = Membership.objects.get_or_create(
        tenant=invitation.tenant, user=user, defaults={"role": invitation.role}
    )
    if not is_new:
        raise InvitationRefused(Refusal.MEMBER)
    return membership


@contextmanager
def _opened(token: str, user: User | None, *, is_change: bool = True) -> Iterator[Invitation]:
    """Open the scope of the token's tenant and find the open invitation in it, locked for a change.
    Raises `InvitationRefused`, which leaves an event in that tenant's log, whoever raises it
    inside."""
    tenant_id = tenant_of(token)
    if tenant_id is None:
        raise InvitationRefused(Refusal.UNKNOWN)
    invitation = None
    try:
        with tenant_scope(tenant_id):
            invitation = _found(token, is_change=is_change)
            _check_open(invitation, user)
            yield invitation
    except InvitationRefused as refusal:
        # Whether the address has an account is nothing for those who invited it to read.
        if invitation is not None and refusal.code != Refusal.HAS_ACCOUNT:
            _note(invitation, refusal)
        raise


def _found(token: str, *, is_change: bool) -> Invitation:
    tenants = Tenant.objects.filter(closed_at=None)
    invitations = Invitation.objects.select_related("invited_by", "api_key")
    if is_change:
        # The tenant first, as closing it does: whoever closes it finds no member that comes after.
        tenants = tenants.select_for_update(no_key=True)
        invitations = invitations.select_for_update(of=("self",))
    tenant = tenants.first()
    invitation = None if tenant is None else invitations.filter(digest=digest_of(token)).first()
    if tenant is None or invitation is None:
        raise InvitationRefused(Refusal.UNKNOWN)
    invitation.tenant = tenant
    return invitation


def _check_open(invitation: Invitation, user: User | None) -> None:
    """What became of an invitation is not told to another than the one it was sent to."""
    if user is not None and user.email != invitation.email:
        raise InvitationRefused(Refusal.ANOTHERS)
    if invitation.state is not InvitationState.OPEN:
        raise InvitationRefused(Refusal(f"invitation_{invitation.state.value}"))


def _check_acceptable(invitation: Invitation, user: User | None) -> None:
    if not _is_vouched_for(invitation):
        raise InvitationRefused(Refusal.NOT_VOUCHED_FOR)
    if invitation.tenant.is_suspended:
        raise InvitationRefused(Refusal.SUSPENDED)
    if user is not None and Membership.objects.filter(user=user).exists():
        raise InvitationRefused(Refusal.MEMBER)


def _is_vouched_for(invitation: Invitation) -> bool:
    """Return whether whoever sent the link could still send it: members lose roles and leave, keys
    are revoked."""
    sender: Membership | ApiKey | None = None
    if invitation.api_key is not None:
        key = invitation.api_key
        is_over = key.expires_at is not None and key.expires_at <= timezone.now()
        if key.is_revoked or is_over:
            return False
        sender = key
    elif invitation.invited_by_id is not None:
        # Locked, so that nobody loses a role between here and the commit.
        members = Membership.objects.select_for_update().filter(user_id=invitation.invited_by_id)
        sender = members.first()
        if sender is None:
            return False
    rights = rights_of(sender)
    return Permission.WRITE_PEOPLE in rights and may_grant(rights, Role(invitation.role))


def _note(invitation: Invitation, refusal: InvitationRefused) -> None:
    if is_first_in_an_hour(f"invitation:{invitation.id}:{refusal.code}"):
        with tenant_scope(invitation.tenant_id):
            record(Verb.REFUSED, invitation, tenant_id=invitation.tenant_id, reason=refusal.code)
