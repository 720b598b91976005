"""The price book: what tokens cost, and from when until when. A price is never changed; its period
may be closed, and another one follows."""

import uuid
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import DateTimeRangeField, RangeOperators
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Now
from django.utils import timezone

from gpu_workers.protocol.policy import WHOLE, PricePolicy
from tenants.models.policy_change import AffectsPolicy, PolicyImpact, PolicyPart, PolicyQuerySet
from tenants.models.tier import Tier


class Period(Func):
    """From `effective_from` on, before `effective_until`; for ever where that is empty."""

    function = "TSTZRANGE"
    output_field = DateTimeRangeField()

    def __init__(self, *expressions: Any, **extra: Any) -> None:
        super().__init__(*(expressions or (F("effective_from"), F("effective_until"))), **extra)


def disjoint_periods(name: str, *fields: str, what: str) -> ExclusionConstraint:
    """Build the constraint that no two rows with the same `fields` apply at the same moment."""
    return ExclusionConstraint(
        name=name,
        expressions=[
            *((field, RangeOperators.EQUAL) for field in fields),
            (Period(), RangeOperators.OVERLAPS),
        ],
        violation_error_message=f"{what} already applies in part of this period. "
        "End it first, or choose a period that does not overlap.",
        violation_error_code="period_overlap",
    )


class EffectiveDated(models.Model):
    """What holds in a period. A trigger refuses a period that begins in the past, and every change
    but closing one that is open, at a moment that is not in the past."""

    effective_from = models.DateTimeField(
        db_default=Now(), blank=True, help_text="Leave blank for now; must not be in the past."
    )
    effective_until = models.DateTimeField(
        null=True, blank=True, help_text="Leave blank to apply until replaced."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    closed_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        abstract = True


def _valid_period(name: str) -> models.CheckConstraint:
    return models.CheckConstraint(
        condition=Q(effective_until=None) | Q(effective_until__gte=F("effective_from")),
        name=name,
        violation_error_code="period_order",
        violation_error_message="The period must end after it starts.",
    )


class MicrosField(models.PositiveBigIntegerField):  # type: ignore[type-arg]
    """Whole micro-dollars, a million dollars at most, which of a price is one a token. Django would
    cut a fraction off; here it is refused."""

    default_validators = [MaxValueValidator(10**12)]

    def to_python(self, value: Any) -> Any:
        if isinstance(value, float | Decimal) and value != int(value):
            raise ValidationError(f"Expected whole micro-dollars, got {value}.", code="invalid")
        return super().to_python(value)

    def get_prep_value(self, value: Any) -> Any:
        return super().get_prep_value(self.to_python(value))

    def deconstruct(self) -> Any:
        name, _, *arguments = super().deconstruct()
        return name, "django.db.models.PositiveBigIntegerField", *arguments


_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_PRICE: Final[dict[str, Any]] = {"help_text": "In micro-dollars: 150000 is $0.15."}


class TokenPrices(models.Model):
    """What tokens of a model cost: for one tier and one adapter, or for all where these are empty.
    Micro-dollars per million tokens are pico-dollars a token."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # Money knows models, tiers and adapters by name only, so that it outlives them.
    model = models.CharField(max_length=200)
    tier = models.CharField(
        max_length=40,
        blank=True,
        default="",
        help_text="Leave blank for all tiers (the tier multiplier applies); a tier-specific price "
        "is used as is.",
    )
    adapter = models.CharField(
        max_length=200, blank=True, default="", help_text="Leave blank for all adapters."
    )
    prompt_micros_per_million_tokens = MicrosField("prompt price / 1M tokens", **_PRICE)
    cached_micros_per_million_tokens = MicrosField("cached prompt price / 1M tokens", **_PRICE)
    completion_micros_per_million_tokens = MicrosField("completion price / 1M tokens", **_PRICE)
    batch_discount_permille = models.PositiveSmallIntegerField(
        "batch discount (‰)",
        default=0,
        validators=[MaxValueValidator(WHOLE)],
        help_text="Discount for service class batch, in tenths of a percent: 500 is 50% off.",
    )

    class Meta:
        abstract = True

    def clean(self) -> None:
        super().clean()
        if self.tier and not Tier.objects.filter(name=self.tier).exists():
            missing = ValidationError(f"No tier named {self.tier!r}.", code="invalid_choice")
            raise ValidationError({"tier": missing})

    @property
    def what_for(self) -> str:
        """Return what is priced, as people read it: the model, then tier and adapter if the price
        is for one."""
        parts = [self.model, f"tier {self.tier}", f"adapter {self.adapter}"]
        given = (True, self.tier, self.adapter)
        return ", ".join(part for part, is_given in zip(parts, given, strict=True) if is_given)


class PriceQuerySet(PolicyQuerySet["Price"]):
    def naming_tier(self, tier: str) -> "PriceQuerySet":
        """Return those that name a tier and have not ended: it keeps its name and stays until they
        do."""
        not_ended = Q(effective_until=None) | Q(effective_until__gt=timezone.now())
        return self.filter(not_ended, tier=tier)

    def in_policy(self) -> dict[str, list[PricePolicy]]:
        """Return the prices that gateways need, by model: those that had not ended when the model's
        prices were changed last. So what they are given depends on the book alone, not on the
        clock."""
        rows: defaultdict[str, list[Price]] = defaultdict(list)
        for price in self.order_by("model", "tier", "adapter", "effective_from"):
            rows[price.model].append(price)
        return {
            model: [
                price.to_policy()
                for price in prices
                if price.effective_until is None
                or price.effective_until > max(each.changed_at for each in prices)
            ]
            for model, prices in rows.items()
        }


class Price(TokenPrices, EffectiveDated, AffectsPolicy):
    """A price in a period; no two for the same model, tier and adapter hold at once."""

    objects = PriceQuerySet.as_manager()

    class Meta:
        ordering = ["model", "tier", "adapter", "-effective_from"]
        constraints = [
            disjoint_periods(
                "price_periods_disjoint", "model", "tier", "adapter", what="Another price"
            ),
            _valid_period("price_period_valid"),
            models.CheckConstraint(
                condition=Q(batch_discount_permille__lte=WHOLE), name="price_discount_in_range"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.what_for} from {self.effective_from:%Y-%m-%d %H:%M}"

    @property
    def changed_at(self) -> datetime:
        return self.created_at if self.closed_at is None else self.closed_at

    def policy_impact(self) -> PolicyImpact:
        return PolicyImpact(PolicyPart.MODELS)

    def to_policy(self) -> PricePolicy:
        return policy_of(self, self.effective_from, self.effective_until)


class PriceCorrection(TokenPrices):
    """What a past period should have cost. Re-rating goes by it in place of the price that held,
    and by the newest where several do; no request is ever admitted at it."""

    effective_from = models.DateTimeField()
    effective_until = models.DateTimeField()
    reason = models.CharField(
        max_length=500, help_text="Stored permanently; do not include personal data."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    is_audited = True

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(effective_until__gt=F("effective_from")),
                name="correction_period_valid",
                violation_error_code="period_order",
                violation_error_message="The period must end after it starts.",
            ),
            models.CheckConstraint(
                condition=Q(effective_until__lte=F("created_at")),
                name="correction_in_past",
                violation_error_code="not_in_past",
                violation_error_message="A correction must lie in the past; to change future "
                "prices, set a price.",
            ),
            models.CheckConstraint(
                condition=~Q(reason=""),
                name="correction_has_reason",
                violation_error_code="reason_required",
                violation_error_message="Give a reason.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.what_for} from {self.effective_from:%Y-%m-%d %H:%M}"

    def to_policy(self) -> PricePolicy:
        return policy_of(self, self.effective_from, self.effective_until)


class TierMultiplier(models.Model):
    """What a tier multiplied prices by, from when on. A trigger on the tiers writes it."""

    id = models.BigAutoField(primary_key=True)
    tier = models.CharField(max_length=40)
    permille = models.PositiveIntegerField()
    effective_from = models.DateTimeField()

    class Meta:
        ordering = ["tier", "-effective_from"]

    def __str__(self) -> str:
        return f"{self.tier} x {self.permille / WHOLE}"


class PoolCost(EffectiveDated):
    """What the GPUs of a pool cost the operator, and how many each of its workers has."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    pool = models.CharField(max_length=100)
    micros_per_gpu_hour = MicrosField(
        "cost per GPU hour", help_text="In micro-dollars: 2500000 is $2.50."
    )
    gpus_per_worker = models.PositiveSmallIntegerField("GPUs per worker", default=1)

    is_audited = True

    class Meta:
        ordering = ["pool", "-effective_from"]
        constraints = [
            disjoint_periods("pool_cost_periods_disjoint", "pool", what="Another cost"),
            _valid_period("pool_cost_period_valid"),
        ]

    def __str__(self) -> str:
        return f"{self.pool} from {self.effective_from:%Y-%m-%d %H:%M}"


class StoragePrice(EffectiveDated):
    """What it costs to keep adapters: of a GiB for a whole month, and of its parts by the hour."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    micros_per_gib_month = MicrosField(
        "price per GiB and month", help_text="In micro-dollars: 100000 is $0.10; 0 charges nothing."
    )

    is_audited = True

    class Meta:
        ordering = ["-effective_from"]
        constraints = [
            disjoint_periods("storage_price_periods_disjoint", what="Another price"),
            _valid_period("storage_price_period_valid"),
        ]

    def __str__(self) -> str:
        return f"storage from {self.effective_from:%Y-%m-%d %H:%M}"


class PoolHour(models.Model):
    """For how long the workers of a pool lived in one hour (UTC), added up."""

    id = models.BigAutoField(primary_key=True)
    pool = models.CharField(max_length=100)
    hour = models.DateTimeField()
    worker_ms = models.PositiveBigIntegerField()

    class Meta:
        ordering = ["-hour", "pool"]
        constraints = [models.UniqueConstraint(fields=["pool", "hour"], name="pool_hour_once")]

    def __str__(self) -> str:
        return f"{self.pool} {self.hour:%Y-%m-%d %H}h"


def policy_of(prices: TokenPrices, begin: datetime, end: datetime | None) -> PricePolicy:
    """Convert prices to their form on the wire: whole milliseconds, so that a period ends where the
    next one begins."""
    return PricePolicy(
        prompt=prices.prompt_micros_per_million_tokens,
        cached=prices.cached_micros_per_million_tokens,
        completion=prices.completion_micros_per_million_tokens,
        tier=prices.tier,
        adapter=prices.adapter,
        batch_permille=WHOLE - prices.batch_discount_permille,
        from_ms=_ms(begin),
        until_ms=None if end is None else _ms(end),
    )


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
