"""Somebody arrives with an answer of a tenant's provider: who they are, and their role, here and
nowhere else."""

import uuid

from django.contrib.auth.hashers import make_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.access.people import change_role, remove
from tenants.access.sign_on.configuration import role_for
from tenants.access.sign_on.domains import domain_of, has_proven
from tenants.access.sign_on.id_token import Claims
from tenants.access.sign_on.refusals import Reason, SignOnRefused
from tenants.audit.hourly import is_first_in_an_hour
from tenants.audit.log import record
from tenants.errors import Conflict
from tenants.isolation.audit_actor import UNKNOWN_ACTOR, Verb, audit_actor
from tenants.isolation.scoping import tenant_scope
from tenants.models import (
    Cap,
    CapReached,
    Membership,
    SignOnConfiguration,
    SignOnIdentity,
    Tenant,
    User,
    check_cap,
)
from tenants.permissions import ROLE_PERMISSIONS, Role

_PROVIDERS = ROLE_PERMISSIONS[Role.OWNER]


def complete_sign_on(tenant_id: uuid.UUID, claims: Claims, *, address: str | None) -> User:
    """Return whom the claims name, with the role that they give. Whoever is new is bound by an
    address that the provider has verified, in a domain that the tenant has proven: an account that
    has it, or a new one. Raises `SignOnRefused`; a member without a role is one no more by then."""
    with tenant_scope(tenant_id):
        # The tenant first, as whoever changes its provider does.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant_id)
        configuration = (
            # Two first sign-ins of one person: the second finds what the first has bound.
            SignOnConfiguration.objects.select_for_update(of=("self",)).get(pk=tenant_id)
        )
        if configuration.issuer != claims.issuer:
            raise SignOnRefused(Reason.WRONG_ISSUER)  # it was changed meanwhile
        identity = _identity(claims)
        user = identity.user if identity else _user_by_address(configuration, claims)
        if not user.is_active:
            raise SignOnRefused(Reason.INACTIVE)
        role = role_for(configuration, claims.others)
        with audit_actor(user.as_actor(), address):
            membership = Membership.objects.filter(user=user).first() if user.pk else None
            if role is None and not (membership and not configuration.role_claim):
                if identity and membership:
                    _withdraw(membership)
            else:
                if membership is None:
                    _check_room(tenant_id)
                _bind(identity, user, claims, tenant_id)
                role = _follow(configuration, membership, user, role)
                record(Verb.SIGNED_IN, user, tenant_id=tenant_id, by="sign_on")
    if role is None:
        raise SignOnRefused(Reason.NO_ROLE)
    return user


def note_refusal(tenant_id: uuid.UUID, reason: Reason, *, address: str | None) -> None:
    """Record in the tenant's audit log that somebody was not signed in, and why; once an hour for
    each reason, as any stranger can be refused."""
    if not is_first_in_an_hour(f"sign-on:{tenant_id}:{reason}"):
        return
    with tenant_scope(tenant_id), audit_actor(UNKNOWN_ACTOR, address):
        tenant = Tenant.objects.filter(pk=tenant_id, closed_at=None).first()
        if tenant is not None:
            record(Verb.SIGN_ON_REFUSED, tenant, tenant_id=tenant_id, reason=reason.value)


def _identity(claims: Claims) -> SignOnIdentity | None:
    found = SignOnIdentity.objects.select_related("user")
    return found.filter(issuer=claims.issuer, subject=claims.subject).first()


def _user_by_address(configuration: SignOnConfiguration, claims: Claims) -> User:
    """Return the account with the address, or one that is not stored yet."""
    try:
        validate_email(claims.email)
    except ValidationError:
        raise SignOnRefused(Reason.UNVERIFIED_EMAIL) from None
    if not claims.is_email_verified:
        raise SignOnRefused(Reason.UNVERIFIED_EMAIL)
    if not has_proven(domain_of(claims.email)):
        raise SignOnRefused(Reason.FOREIGN_DOMAIN)
    user = User.objects.filter(email=claims.email).first()
    if user is None:
        return User(email=claims.email, name=claims.name, password=make_password(None))
    if SignOnIdentity.objects.filter(issuer=configuration.issuer, user=user).exists():
        # An address that was given to somebody else, maybe.
        raise SignOnRefused(Reason.OTHER_SUBJECT)
    return user


def _check_room(tenant_id: uuid.UUID) -> None:
    try:
        check_cap(tenant_id, Cap.MEMBERS)
    except CapReached:
        raise SignOnRefused(Reason.NO_ROOM) from None


def _bind(
    identity: SignOnIdentity | None, user: User, claims: Claims, tenant_id: uuid.UUID
) -> None:
    if identity is not None:
        identity.last_used_at = timezone.now()
        identity.save(update_fields=["last_used_at"])
        return
    if user._state.adding:
        try:
            with transaction.atomic():
                user.save(force_insert=True)
        except IntegrityError:
            # Made at the same time by another way in; the next try finds it.
            raise SignOnRefused(Reason.UNKNOWN_STATE) from None
    SignOnIdentity.objects.create(
        tenant_id=tenant_id, user=user, issuer=claims.issuer, subject=claims.subject
    )


def _follow(
    configuration: SignOnConfiguration,
    membership: Membership | None,
    user: User,
    role: Role | None,
) -> Role:
    """Give the role, and return the one that somebody has then: the last owner stays one, and so
    does the last who gets in without the provider."""
    if membership is None:
        assert role is not None  # noqa: S101
        Membership.objects.create(tenant_id=configuration.pk, user=user, role=role)
        return role
    present = Role(membership.role)
    if role is None or role == present or not configuration.role_claim:
        return present
    try:
        change_role(membership, role, by=_PROVIDERS)
    except Conflict:
        return present
    return role


def _withdraw(membership: Membership) -> None:
    try:
        remove(membership, by=_PROVIDERS)
    except Conflict:
        return
