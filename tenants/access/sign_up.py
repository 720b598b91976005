"""Signing up: an account with a proven email address, and a tenant of its own, made at once."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from django.contrib.auth.password_validation import validate_password
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.text import slugify

from tenants.access.account_changes import BadLink
from tenants.access.people import OPERATOR, set_member
from tenants.access.projects import add_tenant
from tenants.audit.log import record
from tenants.billing.ledger.credit import grant_promotion
from tenants.errors import Conflict
from tenants.isolation.audit_actor import Verb, audit_actor
from tenants.isolation.scoping import operator_scope
from tenants.models import BillingMode, Tenant, Tier, User
from tenants.permissions import Role

_LINK: Final = "penstock.sign-up"
LINK_SECONDS: Final = 24 * 3600
_SLUG_CHARACTERS: Final = 40
_SLUG_BYTES: Final = 4


class NoSuchTier(Conflict):
    """The tier of the operator's settings does not exist, so nobody can sign up."""

    code = "no_such_tier"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the operator's settings give a new tenant; it is prepaid."""

    tier: str
    credit_nanos: int


@dataclass(frozen=True, kw_only=True)
class Newcomer:
    """What somebody who has proven their address says of themselves."""

    name: str
    organisation: str
    password: str


def ask_to_sign_up(email: str) -> str | None:
    """Return the key of the link that proves the address, None if it has an account. Nothing is
    stored until the link is opened."""
    key = signing.dumps(email, salt=_LINK)
    return None if User.objects.filter(email=email).exists() else key


def email_of_link(key: str) -> str:
    """Return the address that a link proves. Raises `BadLink`, also once it has an account."""
    try:
        email = str(signing.loads(key, salt=_LINK, max_age=LINK_SECONDS))
    except signing.BadSignature:
        email = ""
    if not email or User.objects.filter(email=email).exists():
        raise BadLink("This link is invalid, already used or expired.")
    return email


def sign_up(key: str, newcomer: Newcomer, terms: Terms, *, address: str | None) -> User:
    """Make account, tenant, project, membership and credit, or nothing of it. Raises `BadLink`,
    `NoSuchTier` and `ValidationError`."""
    user = new_account(email_of_link(key), name=newcomer.name, password=newcomer.password)
    with operator_scope("sign-up"), audit_actor(user.as_actor(), address):
        tier = Tier.objects.filter(name=terms.tier).first()
        if tier is None:
            raise NoSuchTier("Sign-up is not available; contact the operator of this service.")
        try:
            with transaction.atomic():
                user.save()
        except IntegrityError:
            # The same link, opened twice at the same time.
            raise BadLink("This link is invalid, already used or expired.") from None
        tenant = Tenant(
            name=newcomer.organisation.strip(),
            slug=_slug_of(newcomer.organisation),
            tier=tier,
            billing_mode=BillingMode.PREPAID,
        )
        with _told_of("organisation"):
            add_tenant(tenant)
        set_member(tenant, user, Role.OWNER, by=OPERATOR)
        if terms.credit_nanos > 0:
            grant_promotion(tenant.id, terms.credit_nanos, reference="sign-up", memo="Sign-up")
        record(Verb.SIGNED_UP, user, tenant_id=tenant.id)
    return user


def _slug_of(name: str) -> str:
    """Return a slug that says nothing of who else is a customer: it would, if only the second of a
    name had a number."""
    plain = re.sub(r"[^a-z0-9]+", "-", slugify(name)[:_SLUG_CHARACTERS]).strip("-")
    return f"{plain or 'tenant'}-{secrets.token_hex(_SLUG_BYTES)}"


def new_account(email: str, *, name: str, password: str) -> User:
    """Return an account that is yet to be stored. Raises `ValidationError`."""
    user = User(email=email, name=name.strip())
    with _told_of("password"):
        validate_password(password, user)
    user.set_password(password)
    user.full_clean(exclude=["password"], validate_unique=False)
    return user


@contextmanager
def _told_of(field: str) -> Iterator[None]:
    """Name the field of the form in what is refused inside."""
    try:
        yield
    except ValidationError as error:
        raise ValidationError({field: error.messages}) from None
