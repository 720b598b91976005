"""What a model's tokens cost. A price is never changed: a new one takes its place."""

import uuid

from django.db import models
from django.utils import timezone

from gpu_workers.protocol.policy import PricePolicy
from tenants.models.policy_change import AffectsPolicy, PolicyPart, PolicyQuerySet, Touched


class PriceQuerySet(PolicyQuerySet["Price"]):
    def current(self) -> dict[str, PricePolicy]:
        """The newest price of each model, by the model's name."""
        newest = self.order_by("model", "-created_at").distinct("model")
        return {price.model: price.to_policy() for price in newest}


class Price(AffectsPolicy):
    """The list price of a served model from `created_at` on, in micro-dollars per million tokens;
    a tier's multiplier comes on top."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # Money knows models by name only, so that it outlives the catalogue.
    model = models.CharField(max_length=200)
    prompt_micros_per_million_tokens = models.PositiveBigIntegerField()
    cached_micros_per_million_tokens = models.PositiveBigIntegerField()
    completion_micros_per_million_tokens = models.PositiveBigIntegerField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = PriceQuerySet.as_manager()

    class Meta:
        ordering = ["model", "-created_at"]
        indexes = [models.Index(fields=["model", "-created_at"], name="price_newest")]

    def __str__(self) -> str:
        return f"{self.model} from {self.created_at:%Y-%m-%d}"

    def touched(self) -> Touched:
        return Touched(PolicyPart.MODELS)

    def to_policy(self) -> PricePolicy:
        """A micro-dollar per million tokens is a pico-dollar a token."""
        return PricePolicy(
            prompt=self.prompt_micros_per_million_tokens,
            cached=self.cached_micros_per_million_tokens,
            completion=self.completion_micros_per_million_tokens,
        )
