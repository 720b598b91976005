"""SLA tiers: the limits and promises that a tenant has bought."""

import uuid
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from tenants.models.policy_change import AffectsPolicy, PolicyImpact, PolicyManager, PolicyPart

_AT_LEAST_ONE = [MinValueValidator(1)]


class ServiceClass(models.TextChoices):
    """What a tier's requests are like, and so what is promised for them."""

    INTERACTIVE = "interactive", "interactive: a person waits for each word"
    CODE = "code", "code: an editor waits for a completion"
    DOCUMENTS = "documents", "documents: a program waits for a long answer"
    BATCH = "batch", "batch: nobody waits"


class Tier(AffectsPolicy):
    """An SLA tier, e.g. `premium`. Admission enforces its limits, dispatch its deadline."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.SlugField(max_length=40, unique=True)
    service_class = models.CharField(
        max_length=20, choices=ServiceClass, default=ServiceClass.INTERACTIVE
    )
    priority = models.SmallIntegerField(help_text="As in vLLM: smaller runs first.")
    weight = models.PositiveSmallIntegerField(
        validators=_AT_LEAST_ONE, help_text="Share of a busy pool, relative to other tiers."
    )
    ttft_target_ms = models.PositiveIntegerField(
        "TTFT target (ms)", validators=_AT_LEAST_ONE, help_text="Promised for 99 % of requests."
    )
    inter_token_target_ms = models.PositiveIntegerField(
        "inter-token target (ms)",
        validators=_AT_LEAST_ONE,
        default=100,
        help_text="Promised for 99 % of inter-token latencies.",
    )
    uptime_percent = models.DecimalField(
        max_digits=6,
        decimal_places=3,
        default=Decimal("99.5"),
        validators=[MinValueValidator(0), MaxValueValidator(100)],
        help_text="Promised share of a month in which requests are served.",
    )
    max_queue_seconds = models.PositiveIntegerField(
        validators=_AT_LEAST_ONE, help_text="A request that no worker took by then gets a 503."
    )
    requests_per_minute = models.PositiveIntegerField(validators=_AT_LEAST_ONE)
    tokens_per_minute = models.PositiveBigIntegerField(
        null=True, blank=True, validators=_AT_LEAST_ONE, help_text="Empty: no limit."
    )
    max_concurrent_requests = models.PositiveIntegerField(validators=_AT_LEAST_ONE)
    max_context_tokens = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=_AT_LEAST_ONE,
        help_text="Prompt and output together; empty: what the model takes.",
    )
    default_max_output_tokens = models.PositiveIntegerField(
        validators=_AT_LEAST_ONE, help_text="Output bound where a request names none."
    )
    max_output_tokens = models.PositiveIntegerField(validators=_AT_LEAST_ONE)
    price_multiplier = models.DecimalField(
        max_digits=6,
        decimal_places=3,
        default=Decimal(1),
        validators=[MinValueValidator(0)],
        help_text="1 is the list price.",
    )

    objects = PolicyManager()

    class Meta:
        ordering = ["priority", "name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        super().clean()
        if (self.default_max_output_tokens or 0) > (self.max_output_tokens or 0):
            raise ValidationError(
                {"default_max_output_tokens": "The default output may not exceed the maximum."}
            )

    def policy_impact(self) -> PolicyImpact:
        return PolicyImpact(PolicyPart.TIERS, str(self.id))
