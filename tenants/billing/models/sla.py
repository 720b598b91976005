"""What a promise that was not kept is worth: the schedule of SLA credits, as data; and what
operators decide of those on a draft."""

import uuid

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from tenants.billing.models.invoice import Invoice


class Promise(models.TextChoices):
    """What a tier promises for a month."""

    TTFT = "ttft", "time to first token"
    INTER_TOKEN = "inter_token", "inter-token latency"
    UPTIME = "uptime", "uptime"


class SlaCreditStep(models.Model):
    """From this shortfall on, in percentage points below the promise, so many percent of what the
    month's usage in that tier cost are credited. Of the steps that were reached the one with the
    largest shortfall holds."""

    is_audited = True

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    promise = models.CharField("SLA target", max_length=20, choices=Promise.choices)
    shortfall_points = models.DecimalField(
        "shortfall (percentage points)",
        max_digits=6,
        decimal_places=3,
        validators=[MinValueValidator(0), MaxValueValidator(100)],
        help_text="0.4 applies at 99.1% or less if the target is 99.5%; 0 applies to any "
        "shortfall.",
    )
    credit_percent = models.PositiveSmallIntegerField(
        "credit (%)", validators=[MinValueValidator(1), MaxValueValidator(100)]
    )

    class Meta:
        ordering = ["promise", "shortfall_points"]
        verbose_name = "SLA credit step"
        constraints = [
            models.UniqueConstraint(
                fields=["promise", "shortfall_points"],
                name="sla_credit_step_once",
                violation_error_message="This target already has a step at this shortfall.",
            )
        ]

    def __str__(self) -> str:
        return (
            f"{self.promise}: {self.credit_percent}% credit "
            f"from {self.shortfall_points} points below target"
        )


class SlaDecision(models.TextChoices):
    """held -> released | refused. A draft whose credit is held is not issued."""

    HELD = "held", "held"
    RELEASED = "released", "released"
    REFUSED = "refused", "refused"


class SlaReview(models.Model):
    """What an operator decided of the SLA credit of a draft; who it was stands in the audit log. It
    is of operators alone, so it has no tenant, and nothing of an invoice tells of it."""

    is_audited = True

    invoice = models.OneToOneField(
        Invoice, on_delete=models.CASCADE, primary_key=True, related_name="sla_review"
    )
    decision = models.CharField(max_length=10, choices=SlaDecision.choices)
    reason = models.CharField(
        max_length=500, help_text="Stored permanently in the audit log: no personal data."
    )
    decided_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = "SLA credit review"

    def __str__(self) -> str:
        return f"{self.decision}: {self.reason}"
