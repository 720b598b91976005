"""Tenants, their projects and their people."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from tenants.models.policy_version import AffectsPolicy
from tenants.models.tier import Tier


class Tenant(AffectsPolicy):
    """An organisation: the wall behind which everything of one customer lives."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=200)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, related_name="tenants")
    is_suspended = models.BooleanField(
        default=False, help_text="New requests are refused; nothing is deleted."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                Lower("name"),
                name="tenant_name_in_any_case",
                violation_error_message="There is already a tenant of this name.",
            )
        ]

    def __str__(self) -> str:
        return self.name


class Project(AffectsPolicy):
    """A tenant's subdivision; keys and usage belong to one."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="projects")
    name = models.CharField(max_length=200, default="default")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant__name", "name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="project_name_in_tenant")
        ]

    def __str__(self) -> str:
        return f"{self.tenant} / {self.name}"


class Membership(models.Model):
    """A user belongs to a tenant."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="membership_once_in_tenant")
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.tenant}"
