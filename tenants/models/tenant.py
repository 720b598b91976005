"""Tenants, their projects and their people."""

import uuid
from typing import Any, Final

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.utils import timezone

from gpu_workers.protocol.labels import MAX_LABELS, MAX_NAME_CHARACTERS
from gpu_workers.protocol.policy import OnSaturation
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.isolation.scoping import ScopedManager
from tenants.models.policy_change import (
    AffectsPolicy,
    PolicyImpact,
    PolicyPart,
    ScopedPolicyManager,
)
from tenants.models.tier import Tier
from tenants.names import one_line
from tenants.permissions import ROLE_PERMISSIONS, Permission, Role


class BillingMode(models.TextChoices):
    """What pays for usage that no given credit covers."""

    POSTPAID = "postpaid", "postpaid: usage is billed on the next invoice"
    PREPAID = "prepaid", "prepaid: usage draws on credit; without credit requests are refused"


class Tenant(AffectsPolicy):
    """An organisation: the wall behind which everything of one customer lives."""

    tenant_path = "id"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # Another may have the same: that one is taken would say who else is a customer.
    name = models.CharField(max_length=200, validators=[one_line])
    # What its adapters' names begin with. PostgreSQL makes it of the first name, see slugs.sql, and
    # keeps it: through new names, and after the closing, so that nobody inherits it.
    slug = models.CharField(max_length=63, editable=False, db_default="")
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, related_name="tenants")
    is_suspended = models.BooleanField(
        "suspended",
        default=False,
        help_text="New requests are refused and open streams end. Nothing is deleted.",
    )
    billing_mode = models.CharField(
        max_length=20, choices=BillingMode, default=BillingMode.POSTPAID
    )
    # What a session needs to enter, beside membership: see tenants/access/entry_policy.py.
    demands_sign_on = models.BooleanField("single sign-on required", default=False)
    demands_second_factor = models.BooleanField("two-step sign-in required", default=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    # Its data was deleted; what remains is what its usage and its invoices refer to.
    closed_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ScopedPolicyManager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["slug"], name="tenant_slug_once"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_closed(self) -> bool:
        return self.closed_at is not None

    def suspend(self) -> None:
        """Refuse its new requests and end its open streams; nothing is deleted."""
        self._set(Verb.SUSPENDED, is_suspended=True)

    def resume(self) -> None:
        self._set(Verb.RESUMED, is_suspended=False)

    def move_to(self, tier: Tier) -> None:
        """Give it the limits and promises of another tier, for requests from now on."""
        self._set(Verb.MOVED, tier=tier)

    def set_billing_mode(self, mode: BillingMode) -> None:
        """Set whether it pays beforehand or afterwards, for requests from now on. Raises
        `ValidationError` for a closed tenant."""
        self._set(Verb.CHANGED, billing_mode=mode)

    def _set(self, verb: Verb, **values: Any) -> None:
        if self.is_closed:
            raise ValidationError(
                f"{self.name} is closed and can no longer be changed.", code="closed"
            )
        for name, value in values.items():
            setattr(self, name, value)
        with audited_as(verb):
            self.save(update_fields=list(values))

    def policy_impact(self) -> PolicyImpact:
        return PolicyImpact(PolicyPart.TENANTS, str(self.id))

    def rename(self, name: str) -> None:
        """Change the name. Raises `ValidationError`."""
        self.name = name.strip()
        others = {field.name for field in self._meta.fields} - {"name"}
        self.clean_fields(exclude=others)
        self.save(update_fields=["name"])


_ON_SATURATION: Final = [
    (OnSaturation.WAIT.value, "wait: queue the request and flag the response"),
    (OnSaturation.REFUSE.value, "refuse: 429 with Retry-After"),
    (OnSaturation.SMALLER_MODEL.value, "smaller model: use another model, at that model's price"),
]
_USES_SMALLER_MODEL: Final = models.Q(on_saturation=OnSaturation.SMALLER_MODEL.value)


class Project(AffectsPolicy):
    """A tenant's subdivision; keys and usage belong to one."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="projects")
    name = models.CharField(max_length=200, default="default", validators=[one_line])
    on_saturation = models.CharField(
        "when saturated",
        max_length=20,
        choices=_ON_SATURATION,
        default=OnSaturation.WAIT.value,
        help_text="What happens to requests when the expected wait exceeds the tier's TTFT target.",
    )
    # By name, as keys name models: the catalogue stands on a floor above this one.
    smaller_model = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="The fallback; required for (and only used by) that choice.",
    )
    usage_labels = ArrayField(
        models.CharField(max_length=MAX_NAME_CHARACTERS),
        default=list,
        blank=True,
        size=MAX_LABELS,
        help_text="Whom requests are for: 'user' and up to three of 'metadata.<key>' of requests, "
        "by which usage is recorded.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedPolicyManager()

    class Meta:
        ordering = ["tenant__name", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                name="project_name_in_tenant",
                violation_error_code="unique_together",
                violation_error_message="This tenant already has a project with this name.",
            ),
            # What keys and quotas refer to, so that they cannot name another tenant's project.
            models.UniqueConstraint(fields=["id", "tenant"], name="project_of_tenant"),
            models.CheckConstraint(
                condition=_USES_SMALLER_MODEL & ~models.Q(smaller_model="")
                | ~_USES_SMALLER_MODEL & models.Q(smaller_model=""),
                name="project_smaller_model_if_used",
                violation_error_message="Choose a smaller model if, and only if, requests fall "
                "back to one when saturated.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def policy_impact(self) -> PolicyImpact:
        return PolicyImpact(PolicyPart.PROJECTS, str(self.id))

    @property
    def full_name(self) -> str:
        """Return the tenant's name and the project's: most tenants' only project is called
        `default`."""
        return f"{self.tenant.name}: {self.name}"


class MembershipQuerySet(models.QuerySet["Membership"]):
    def delete(self) -> tuple[int, dict[str, int]]:
        with transaction.atomic():
            for membership in self:
                membership.end_playground()
            return super().delete()


MembershipManager = ScopedManager.from_queryset(MembershipQuerySet)


class Membership(models.Model):
    """A user belongs to a tenant, in a role. Whoever leaves, or may make no keys any longer, loses
    their playground, and what they have open there ends."""

    user_path = "user_id"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships"
    )
    role = models.CharField(
        max_length=20, choices=[(role.value, role.value) for role in Role], default=Role.VIEWER
    )
    gets_alerts = models.BooleanField(
        "e-mail alerts", default=True, help_text="Send the alerts meant for this role by e-mail."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = MembershipManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "user"],
                name="membership_once_in_tenant",
                violation_error_message="This user is already a member of the tenant.",
            ),
            models.UniqueConstraint(fields=["id", "tenant"], name="membership_of_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} is {self.role}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        is_new = self._state.adding
        with transaction.atomic():
            super().save(*args, **kwargs)
            if not is_new and not self.may(Permission.WRITE_KEYS):
                self.end_playground()

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        with transaction.atomic():
            self.end_playground()
            return super().delete(*args, **kwargs)

    def end_playground(self) -> None:
        """Revoke the keys behind the member's playgrounds."""
        kept = self.tenant.api_keys.filter(
            is_playground=True, created_by_id=self.user_id, revoked_at=None
        )
        if kept.exists():
            with audited_as(Verb.REVOKED):
                kept.update(revoked_at=timezone.now())

    def may(self, permission: Permission) -> bool:
        return permission in ROLE_PERMISSIONS[Role(self.role)]
