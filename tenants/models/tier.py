"""SLA tiers: the limits and promises that a tenant has bought."""

import uuid

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models

from gpu_workers.protocol.policy import TierPolicy
from tenants.models.policy_version import AffectsPolicy

_AT_LEAST_ONE = [MinValueValidator(1)]


class Tier(AffectsPolicy):
    """An SLA tier, e.g. `premium`. Admission enforces its limits, dispatch its deadline."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.SlugField(max_length=40, unique=True)
    priority = models.SmallIntegerField(help_text="As in vLLM: smaller runs first.")
    weight = models.PositiveSmallIntegerField(
        validators=_AT_LEAST_ONE, help_text="Share of a busy pool, relative to other tiers."
    )
    ttft_target_ms = models.PositiveIntegerField("TTFT target (ms)", validators=_AT_LEAST_ONE)
    max_queue_seconds = models.PositiveIntegerField(
        validators=_AT_LEAST_ONE, help_text="A request that no worker took by then gets a 503."
    )
    requests_per_minute = models.PositiveIntegerField(validators=_AT_LEAST_ONE)
    max_concurrent_requests = models.PositiveIntegerField(validators=_AT_LEAST_ONE)
    default_max_output_tokens = models.PositiveIntegerField(
        validators=_AT_LEAST_ONE, help_text="Output bound where a request names none."
    )
    max_output_tokens = models.PositiveIntegerField(validators=_AT_LEAST_ONE)

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

    def to_policy(self) -> TierPolicy:
        return TierPolicy(
            name=self.name,
            priority=self.priority,
            weight=self.weight,
            ttft_target_ms=self.ttft_target_ms,
            max_queue_seconds=self.max_queue_seconds,
            requests_per_minute=self.requests_per_minute,
            max_concurrent_requests=self.max_concurrent_requests,
            default_max_output_tokens=self.default_max_output_tokens,
            max_output_tokens=self.max_output_tokens,
        )
