"""Quotas: limits of a tenant, a project or a key beside those of the tier, and their alerts."""

import uuid
from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from gpu_workers.protocol.policy import QUOTA_NAMES, LimitName
from tenants.isolation.scoping import ScopedManager
from tenants.models.api_key import ApiKey
from tenants.models.policy_change import (
    AffectsPolicy,
    PolicyImpact,
    PolicyPart,
    ScopedPolicyManager,
)
from tenants.models.tenant import Project, Tenant
from tenants.money import dollars

# Of which values are nano-dollars.
IN_NANOS: Final = (LimitName.SPEND_PER_DAY, LimitName.SPEND_PER_MONTH)
MAX_ALERT_PERCENTS = 10


def default_alert_percents() -> list[int]:
    return [50, 80, 100]


class Quota(AffectsPolicy):
    """One limit at one place. With neither project nor key it is the whole tenant's: the operator's
    or, beside that, one of its members' (`is_own`)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="quotas")
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, null=True, blank=True, related_name="quotas"
    )
    api_key = models.ForeignKey(
        ApiKey,
        verbose_name="API key",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="quotas",
    )
    limit = models.CharField(
        max_length=30, choices=[(name.value, name.value) for name in QUOTA_NAMES]
    )
    value = models.PositiveBigIntegerField(
        validators=[MinValueValidator(1)],
        help_text="For spend limits, in nano-dollars: 1000000000 is $1.",
    )
    is_hard = models.BooleanField(
        "hard limit",
        default=True,
        help_text="If off, usage is counted and alerts are sent, but no request is refused.",
    )

    is_own = models.BooleanField("set by members", default=False, editable=False)

    # More than 100 is for soft ones, which may be passed.
    alert_percents = ArrayField(
        models.PositiveSmallIntegerField(
            validators=[MinValueValidator(1), MaxValueValidator(1000)]
        ),
        verbose_name="alert thresholds (%)",
        default=default_alert_percents,
        blank=True,
        size=MAX_ALERT_PERCENTS,
        help_text="Comma-separated, e.g. 50,80,100. The tenant is notified when a daily or "
        "monthly quota reaches each.",
    )

    non_policy_fields = frozenset({"alert_percents"})

    objects = ScopedPolicyManager()

    class Meta:
        ordering = ["limit"]
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None) | Q(api_key=None),
                name="quota_single_scope",
                violation_error_message="A quota applies to a project or to an API key, not to "
                "both.",
            ),
            models.CheckConstraint(
                condition=Q(is_own=False) | Q(project=None, api_key=None),
                name="quota_own_of_whole_tenant",
            ),
            models.UniqueConstraint(
                fields=["tenant", "limit", "is_own"],
                condition=Q(project=None, api_key=None),
                name="quota_once_in_tenant",
                violation_error_message="This tenant already has a quota for this limit.",
            ),
            models.UniqueConstraint(
                fields=["project", "limit"],
                condition=Q(project__isnull=False),
                name="quota_once_in_project",
                violation_error_message="This project already has a quota for this limit.",
            ),
            models.UniqueConstraint(
                fields=["api_key", "limit"],
                condition=Q(api_key__isnull=False),
                name="quota_once_at_key",
                violation_error_message="This API key already has a quota for this limit.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.limit} {self.amount}"

    @property
    def amount(self) -> str:
        """Return the value as people read it: dollars of spend, else a count."""
        return dollars(self.value) if self.limit in IN_NANOS else f"{self.value:,}"

    def clean(self) -> None:
        super().clean()
        if self.project is not None and self.api_key is not None:
            raise ValidationError("A quota applies to a project or to an API key, not to both.")
        for place in (self.project, self.api_key):
            if place is not None and place.tenant_id != self.tenant_id:
                raise ValidationError("The project or API key must belong to the quota's tenant.")
        self.alert_percents = sorted(set(self.alert_percents))

    @property
    def scope(self) -> str:
        """Return at which place it counts: `tenant`, `project` or `key`."""
        if self.api_key_id is not None:
            return "key"
        return "tenant" if self.project_id is None else "project"

    def policy_impact(self) -> PolicyImpact:
        if self.api_key is not None:
            return self.api_key.policy_impact()
        if self.project_id is not None:
            return PolicyImpact(PolicyPart.PROJECTS, str(self.project_id))
        return PolicyImpact(PolicyPart.TENANTS, str(self.tenant_id))


class QuotaAlert(models.Model):
    """A share of a quota was used up in a period; noted once."""

    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="quota_alerts")
    quota = models.ForeignKey(Quota, on_delete=models.CASCADE, related_name="alerts")
    period = models.CharField(max_length=10, help_text="A day (2026-01-31) or a month (2026-01).")
    percent = models.PositiveSmallIntegerField("threshold (%)")
    used = models.PositiveBigIntegerField()
    raised_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager["QuotaAlert"]()

    class Meta:
        ordering = ["-raised_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["quota", "period", "percent"], name="quota_alert_once_in_period"
            )
        ]

    def __str__(self) -> str:
        return f"{self.percent}% in {self.period}"
