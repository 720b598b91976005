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

    INTERACTIVE = "interactive", "interactive: a person reads along as tokens arrive"
    CODE = "code", "code: an editor waits for a completion"
    DOCUMENTS = "documents", "documents: a program waits for a long completion"
    BATCH = "batch", "batch: nobody waits"


class Tier(AffectsPolicy):
    """An SLA tier, e.g. `premium`. Admission enforces its limits, dispatch its deadline."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.SlugField(max_length=40, unique=True)
    service_class = models.CharField(
        max_length=20, choices=ServiceClass, default=ServiceClass.INTERACTIVE
    )
    priority = models.SmallIntegerField(help_text="As in vLLM: lower values run first.")
    weight = models.PositiveSmallIntegerField(
        validators=_AT_LEAST_ONE, help_text="Share of a busy pool, relative to other tiers."
    )
    ttft_target_ms = models.PositiveIntegerField(
        "TTFT target (ms)", validators=_AT_LEAST_ONE, help_text="Target for 99% of requests."
    )
    inter_token_target_ms = models.PositiveIntegerField(
        "inter-token latency target (ms)",
        validators=_AT_LEAST_ONE,
        default=100,
        help_text="Target for 99% of inter-token latencies.",
    )
    uptime_percent = models.DecimalField(
        "uptime (%)",
        max_digits=6,
        decimal_places=3,
        default=Decimal("99.5"),
        validators=[MinValueValidator(0), MaxValueValidator(100)],
        help_text="Guaranteed availability per calendar month.",
    )
    max_queue_seconds = models.PositiveIntegerField(
        "max time in queue (s)",
        validators=_AT_LEAST_ONE,
        help_text="Requests still queued after this get a 503.",
    )
    requests_per_minute = models.PositiveIntegerField(validators=_AT_LEAST_ONE)
    tokens_per_minute = models.PositiveBigIntegerField(
        null=True, blank=True, validators=_AT_LEAST_ONE, help_text="Leave blank for no limit."
    )
    max_concurrent_requests = models.PositiveIntegerField(validators=_AT_LEAST_ONE)
    max_context_tokens = models.PositiveIntegerField(
        "max context length (tokens)",
        null=True,
        blank=True,
        validators=_AT_LEAST_ONE,
        help_text="Prompt and completion together. Leave blank for the model's own limit.",
    )
    default_max_output_tokens = models.PositiveIntegerField(
        "default max_tokens",
        validators=_AT_LEAST_ONE,
        help_text="Applied to requests that do not set max_tokens.",
    )
    max_output_tokens = models.PositiveIntegerField(
        "upper limit of max_tokens", validators=_AT_LEAST_ONE
    )
    max_adapters = models.PositiveIntegerField(
        default=10, help_text="LoRA adapters, whatever their versions; 0 for none."
    )
    max_adapter_versions = models.PositiveIntegerField(
        default=200,
        help_text="Of all adapters together; those that are archived or deleted answer nobody.",
    )
    max_adapter_bytes = models.PositiveBigIntegerField(
        "max adapter storage (bytes)", default=1 << 30, help_text="All stored versions together."
    )
    max_adapter_rank = models.PositiveIntegerField("largest rank of an adapter", default=64)
    max_adapter_load_seconds = models.PositiveIntegerField(
        "max loading of adapters (seconds a minute)",
        default=30,
        help_text="For so long a minute loads of a tenant's adapters may hold engines up; 0 for as "
        "long as it takes.",
    )
    max_pinned_adapters = models.PositiveIntegerField(
        "max pinned adapters",
        default=0,
        help_text="Adapters that workers keep at hand though nobody asks for them.",
    )
    # What `tenants/models/caps.py` checks.
    max_projects = models.PositiveIntegerField(
        default=200, validators=_AT_LEAST_ONE, help_text="The first comes with the tenant."
    )
    max_api_keys = models.PositiveIntegerField(
        "max API keys",
        default=2000,
        validators=_AT_LEAST_ONE,
        help_text="Those that are not revoked, the playground's too.",
    )
    max_members = models.PositiveIntegerField(
        default=1000, validators=_AT_LEAST_ONE, help_text="With open invitations."
    )
    max_quotas = models.PositiveIntegerField(
        default=2000, help_text="Of the tenant, its projects and its keys together."
    )
    max_webhooks = models.PositiveIntegerField(default=16, help_text="Disabled ones too.")
    # What gateways check.
    max_websockets = models.PositiveIntegerField(
        default=1000,
        validators=_AT_LEAST_ONE,
        help_text="Open ones, at each gateway process.",
    )
    price_multiplier = models.DecimalField(
        max_digits=6,
        decimal_places=3,
        default=Decimal(1),
        validators=[MinValueValidator(0)],
        help_text="Multiplies prices that are not specific to a tier; 1 is the list price.",
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
                {
                    "default_max_output_tokens": (
                        "The default max_tokens must not exceed the upper limit."
                    )
                }
            )

    def policy_impact(self) -> PolicyImpact:
        return PolicyImpact(PolicyPart.TIERS, str(self.id))
