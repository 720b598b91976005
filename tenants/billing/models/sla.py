"""What a promise that was not kept is worth: the schedule of SLA credits, as data."""

import uuid

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models


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
