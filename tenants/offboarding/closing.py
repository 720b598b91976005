"""The end of a tenant: its people's data goes, what its usage and invoices refer to stays."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import LogEntry
from django.contrib.auth.hashers import make_password
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ValidationError
from django.db import connection, models, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Cast, Coalesce, Concat, Now
from django.utils import timezone

from tenants.audit.log import seal_now
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    ApiKey,
    Invitation,
    Membership,
    PersonalDetail,
    Project,
    SavedView,
    Tenant,
    User,
)

# Deletes what a floor above keeps of the people of a tenant.
Eraser = Callable[[Tenant], object]
_erasers: list[Eraser] = []


def register_eraser(erase: Eraser) -> None:
    """Add what is to be deleted with a tenant; runs in the transaction that closes it, inside an
    `operator_scope`."""
    if erase not in _erasers:
        _erasers.append(erase)


# Settles what a floor above keeps of a tenant's money.
Settlement = Callable[[Tenant], object]
_settlements: list[Settlement] = []


def register_settlement(settle: Settlement) -> None:
    """Add what is to be settled before a tenant is closed, while its people and names are there;
    runs first in the transaction that closes it, inside an `operator_scope`."""
    if settle not in _settlements:
        _settlements.append(settle)


@dataclass(frozen=True, kw_only=True)
class ClosedTenant:
    """What was done, in numbers."""

    name: str
    revoked_api_keys: int
    removed_memberships: int
    pseudonymised_users: int


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What a closing would end. `accounts` are those of its people who are in no other tenant."""

    api_keys: int
    projects: int
    members: int
    accounts: int


def what_ends(tenant: Tenant) -> Ending:
    """Count what `close_tenant` would take away. Needs no operator's scope."""
    with operator_scope("what a closing ends"):
        return Ending(
            api_keys=ApiKey.objects.filter(tenant=tenant, revoked_at=None).count(),
            projects=Project.objects.filter(tenant=tenant).count(),
            members=Membership.objects.filter(tenant=tenant).count(),
            accounts=_people_of_nowhere_else(tenant).count(),
        )


def close_tenant(tenant: Tenant) -> ClosedTenant:
    """Settle its money, revoke its keys, remove its people, put pseudonyms in the place of names,
    for good.

    Usage, ledger and the audit log's chain stay; of the log the personal details go. People who
    are in another tenant, or are operators, keep their account. Within an `operator_scope`; raises
    `ValidationError` if the tenant is closed already.
    """
    if tenant.is_closed:
        raise ValidationError(f"{tenant.name} is closed already.", code="closed")
    with transaction.atomic():
        # Before the tenant's row is held: whoever records usage holds it last.
        for settle in _settlements:
            settle(tenant)
        locked = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        if locked.is_closed:
            raise ValidationError(f"{locked.name} is closed already.", code="closed")
        return _close(tenant)


def _close(tenant: Tenant) -> ClosedTenant:
    with audited_as(Verb.CLOSED):
        # First, so that nobody adds to what is taken away here.
        tenant.name = f"closed-{tenant.id}"
        tenant.closed_at = timezone.now()
        tenant.save(update_fields=["name", "closed_at"])
        for erase in _erasers:
            erase(tenant)
        Invitation.objects.filter(tenant=tenant).delete()
        SavedView.objects.filter(tenant=tenant).delete()
        leaving = list(_people_of_nowhere_else(tenant).values_list("id", flat=True))
        closed = ClosedTenant(
            name=tenant.name,
            revoked_api_keys=ApiKey.objects.filter(tenant=tenant, revoked_at=None).count(),
            removed_memberships=Membership.objects.filter(tenant=tenant).delete()[0],
            pseudonymised_users=len(leaving),
        )
        ApiKey.objects.filter(tenant=tenant).update(
            name="", allowed_networks=None, revoked_at=Coalesce("revoked_at", Now())
        )
        Project.objects.filter(tenant=tenant).update(name=_pseudonym("project-"))
        User.objects.filter(id__in=leaving).update(
            email=_pseudonym("deleted-", "@invalid"),
            name="",
            password=make_password(None),
            is_active=False,
        )
        UserSession.objects.filter(user_id__in=leaving).delete()
        Authenticator.objects.filter(user_id__in=leaving).delete()
        _forget_names(tenant, [str(user_id) for user_id in leaving])
    return closed


def hold_open(tenant_ids: Iterable[str]) -> set[str]:
    """Return those of the tenants that are not closed, and hold them open until the transaction
    ends: what is added for one until then is taken away by its closing. For operators."""
    with connection.cursor() as cursor:
        cursor.execute(_HOLD_OPEN, [sorted(tenant_ids)])
        return {tenant_id for (tenant_id,) in cursor.fetchall()}


# In the order of their ids: two who hold the same wait, and none for ever.
_HOLD_OPEN: Final = """
SELECT id::text FROM tenants_tenant WHERE id = ANY(%s::uuid[]) AND closed_at IS NULL
ORDER BY id FOR SHARE
"""


def close_by_owner(tenant: Tenant, typed_name: str) -> ClosedTenant:
    """Close a tenant as `close_tenant` does, for one of its people, within its scope. Who may is
    the door's to check. Raises `ValidationError` unless they have typed its name."""
    if typed_name.strip() != tenant.name:
        wrong = ValidationError(
            "Type the organisation's name to close it for good.", code="wrong_name"
        )
        raise ValidationError({"name": wrong})
    with operator_scope("closing by an owner"):
        return close_tenant(Tenant.objects.get(pk=tenant.pk))


def _people_of_nowhere_else(tenant: Tenant) -> QuerySet[User]:
    elsewhere = Membership.objects.filter(user=OuterRef("pk")).exclude(tenant=tenant)
    return User.objects.filter(
        ~Exists(elsewhere), memberships__tenant=tenant, is_staff=False, is_superuser=False
    )


def _pseudonym(before: str, after: str = "") -> Concat:
    text = models.TextField()
    return Concat(Value(before), Cast("id", text), Value(after), output_field=text)


def _forget_names(tenant: Tenant, user_ids: list[str]) -> None:
    """Erase names from what remembers them: the audit log's personal details, and the admin's own
    history."""
    seal_now()
    PersonalDetail.objects.filter(
        Q(tenant=tenant)
        | Q(event__record_id__in=user_ids)
        | Q(event__actor_kind="user", event__actor_id__in=user_ids)
    ).delete()
    records: dict[type[models.Model], list[str]] = {User: user_ids, Tenant: [str(tenant.pk)]}
    for rows in (Project.objects.filter(tenant=tenant), ApiKey.objects.filter(tenant=tenant)):
        records[rows.model] = [str(row.pk) for row in rows]
    for model, ids in records.items():
        LogEntry.objects.filter(
            content_type=ContentType.objects.get_for_model(model), object_id__in=ids
        ).update(object_repr="", change_message="")
