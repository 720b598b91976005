"""The price book: prices and corrections of tokens, multipliers of tiers, costs of pools."""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.core.validators import MaxValueValidator
from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.functions import Now

from tenants.billing.models.price import Period
from tenants.migrations._schema import SERIAL_KEY, UUID_KEY, columns

PERIOD = {
    "effective_from": models.DateTimeField(
        db_default=Now(), blank=True, help_text="Leave blank for now; must not be in the past."
    ),
    "effective_until": models.DateTimeField(
        null=True, blank=True, help_text="Leave blank to apply until replaced."
    ),
    "created_at": models.DateTimeField(db_default=Now(), editable=False),
    "closed_at": models.DateTimeField(null=True, editable=False),
}
TOKEN_PRICES = {
    "model": models.CharField(max_length=200),
    "tier": models.CharField(
        default="",
        blank=True,
        max_length=40,
        help_text="Leave blank for all tiers (the tier multiplier applies); a tier-specific price is used as is.",
    ),
    "adapter": models.CharField(
        default="", blank=True, max_length=200, help_text="Leave blank for all adapters."
    ),
    **{
        f"{tokens}_micros_per_million_tokens": models.PositiveBigIntegerField(
            f"{label} price / 1M tokens", help_text="In micro-dollars: 150000 is $0.15."
        )
        for tokens, label in (
            ("prompt", "prompt"),
            ("cached", "cached prompt"),
            ("completion", "completion"),
        )
    },
    "batch_discount_permille": models.PositiveSmallIntegerField(
        "batch discount (‰)",
        default=0,
        validators=[MaxValueValidator(1000)],
        help_text="Discount for service class batch, in tenths of a percent: 500 is 50% off.",
    ),
}

PRICE = migrations.CreateModel(
    "Price",
    columns(**PERIOD, id=UUID_KEY, **TOKEN_PRICES),
    options={
        "ordering": ["model", "tier", "adapter", "-effective_from"],
        "constraints": [
            ExclusionConstraint(
                expressions=[("model", "="), ("tier", "="), ("adapter", "="), (Period(), "&&")],
                name="price_periods_disjoint",
                violation_error_code="period_overlap",
                violation_error_message="Another price already applies in part of this period. End it first, or choose a period that does not overlap.",
            ),
            models.CheckConstraint(
                condition=Q(effective_until=None) | Q(effective_until__gte=F("effective_from")),
                name="price_period_valid",
                violation_error_code="period_order",
                violation_error_message="The period must end after it starts.",
            ),
            models.CheckConstraint(
                condition=Q(batch_discount_permille__lte=1000), name="price_discount_in_range"
            ),
        ],
    },
)

PRICE_CORRECTION = migrations.CreateModel(
    "PriceCorrection",
    columns(
        id=UUID_KEY,
        **TOKEN_PRICES,
        effective_from=models.DateTimeField(),
        effective_until=models.DateTimeField(),
        reason=models.CharField(
            max_length=500, help_text="Stored permanently; do not include personal data."
        ),
        created_at=models.DateTimeField(db_default=Now(), editable=False),
    ),
    options={
        "ordering": ["-created_at"],
        "constraints": [
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
                violation_error_message="A correction must lie in the past; to change future prices, set a price.",
            ),
            models.CheckConstraint(
                condition=~Q(reason=""),
                name="correction_has_reason",
                violation_error_code="reason_required",
                violation_error_message="Give a reason.",
            ),
        ],
    },
)

TIER_MULTIPLIER = migrations.CreateModel(
    "TierMultiplier",
    columns(
        id=SERIAL_KEY,
        tier=models.CharField(max_length=40),
        permille=models.PositiveIntegerField(),
        effective_from=models.DateTimeField(),
    ),
    options={"ordering": ["tier", "-effective_from"]},
)

POOL_COST = migrations.CreateModel(
    "PoolCost",
    columns(
        **PERIOD,
        id=UUID_KEY,
        pool=models.CharField(max_length=100),
        micros_per_gpu_hour=models.PositiveBigIntegerField(
            "cost per GPU hour", help_text="In micro-dollars: 2500000 is $2.50."
        ),
        gpus_per_worker=models.PositiveSmallIntegerField("GPUs per worker", default=1),
    ),
    options={
        "ordering": ["pool", "-effective_from"],
        "constraints": [
            ExclusionConstraint(
                expressions=[("pool", "="), (Period(), "&&")],
                name="pool_cost_periods_disjoint",
                violation_error_code="period_overlap",
                violation_error_message="Another cost already applies in part of this period. End it first, or choose a period that does not overlap.",
            ),
            models.CheckConstraint(
                condition=Q(effective_until=None) | Q(effective_until__gte=F("effective_from")),
                name="pool_cost_period_valid",
                violation_error_code="period_order",
                violation_error_message="The period must end after it starts.",
            ),
        ],
    },
)

POOL_HOUR = migrations.CreateModel(
    "PoolHour",
    columns(
        id=SERIAL_KEY,
        pool=models.CharField(max_length=100),
        hour=models.DateTimeField(),
        worker_ms=models.PositiveBigIntegerField(),
    ),
    options={
        "ordering": ["-hour", "pool"],
        "constraints": [models.UniqueConstraint(fields=["pool", "hour"], name="pool_hour_once")],
    },
)
