"""The record of every admitted request. Never holds prompt or output."""

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.db import models
from django.db.models.functions import MD5
from django.utils import timezone

from gpu_workers.protocol.messages import Api, Outcome
from gpu_workers.protocol.request_id import lowest_request_id
from tenants.isolation.scoping import ScopedManager
from tenants.models import ApiKey, Project, Tenant

# How far the arrival of a record may be from the time in its request id.
ID_TOLERANCE: Final = timedelta(minutes=5)


class UsageQuerySet(models.QuerySet["UsageRecord"]):
    def arrived_between(self, begin: datetime, end: datetime) -> "models.QuerySet[UsageRecord]":
        """Filter what arrived from `begin` on and before `end`. Only the partitions that may hold
        it are read."""
        return self.filter(
            arrived_at__gte=begin,
            arrived_at__lt=end,
            request_id__gte=lowest_request_id(_ms(begin - ID_TOLERANCE)),
            request_id__lt=lowest_request_id(_ms(end + ID_TOLERANCE)),
        )

    def of_tenant(self, tenant_id: uuid.UUID) -> "Iterator[UsageRecord]":
        """Return all of them, oldest first, a page at a time."""
        records = self.filter(tenant_id=tenant_id).order_by("request_id")
        return records.iterator(chunk_size=2000)


UsageRecordManager = ScopedManager.from_queryset(UsageQuerySet)


class UsageRecord(models.Model):
    """How one admitted request ended, with the engine's own token counts and what it cost at the
    prices that it was admitted at (pico-dollars a token, and a permille on all). Written once.

    The key is the UUIDv7 request id, and the table is partitioned by it, a month (UTC) each: see
    usage_partitions.sql.
    """

    is_audited = False

    request_id = models.UUIDField(primary_key=True, editable=False)
    # Few ever delete a project or key, many write here: so no index of their own, and PostgreSQL
    # checks the key alone, which holds its project and tenant; the intake compares all three.
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_index=False, db_constraint=False
    )
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, db_index=False, db_constraint=False
    )
    api_key = models.ForeignKey(
        ApiKey, verbose_name="API key", on_delete=models.PROTECT, db_index=False
    )
    tier = models.CharField(max_length=40)
    service_class = models.CharField(max_length=40, default="interactive")
    pool = models.CharField(max_length=100)
    model = models.CharField(max_length=200)
    adapter = models.CharField(max_length=200, default="", blank=True)
    api = models.CharField("API", max_length=40, choices=[(api.value, api.value) for api in Api])
    stream = models.BooleanField()
    attempt = models.PositiveSmallIntegerField(help_text="0 if no worker took the request.")
    worker_id = models.CharField(max_length=200, null=True, blank=True)
    outcome = models.CharField(
        max_length=20, choices=[(outcome.value, outcome.value) for outcome in Outcome]
    )
    finish_reason = models.CharField(max_length=40, null=True, blank=True)
    error_code = models.CharField(max_length=80, null=True, blank=True)
    prompt_tokens = models.PositiveIntegerField()
    cached_tokens = models.PositiveIntegerField()
    completion_tokens = models.PositiveIntegerField()
    reasoning_tokens = models.PositiveIntegerField(default=0)
    wasted_tokens = models.PositiveIntegerField(default=0)
    generated_tokens = models.PositiveIntegerField(
        default=0,
        help_text="Generated in this attempt, by the engine's own count; 0 if no worker reported "
        "the end.",
    )
    waste_reason = models.CharField(max_length=80, default="", blank=True)
    price_prompt = models.PositiveBigIntegerField("prompt price (pico-dollars / token)", default=0)
    price_cached = models.PositiveBigIntegerField("cached price (pico-dollars / token)", default=0)
    price_completion = models.PositiveBigIntegerField(
        "completion price (pico-dollars / token)", default=0
    )
    price_permille = models.PositiveIntegerField("price multiplier (‰)", default=1000)
    cost_nanos = models.PositiveBigIntegerField("cost (nano-dollars)", default=0)
    arrived_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    queue_ms = models.PositiveIntegerField("queued (ms)", null=True, blank=True)
    ttft_ms = models.PositiveIntegerField("TTFT (ms)", null=True, blank=True)
    itl_p50_ms = models.FloatField("inter-token latency, p50 (ms)", null=True, blank=True)
    itl_p95_ms = models.FloatField("inter-token latency, p95 (ms)", null=True, blank=True)
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)
    adapter_version = models.PositiveIntegerField(default=0, db_default=0)
    labels = models.JSONField(
        null=True, blank=True, help_text="Whom it was for, by the names that its project chose."
    )
    owed = models.BooleanField(
        null=True,
        blank=True,
        help_text="Whether its tier's promises were owed: when it was queued its tenant was within "
        "its share, and was told of no longer wait. Unknown of requests of before.",
    )

    objects = UsageRecordManager()

    class Meta:
        ordering = ["-request_id"]
        indexes = [
            # With all that the request log filters by: what is rare is found without the rows.
            models.Index(
                fields=["tenant", "request_id"],
                include=[
                    "arrived_at",
                    "finished_at",
                    "project",
                    "api_key",
                    "model",
                    "adapter",
                    "tier",
                    "outcome",
                    "error_code",
                    "ttft_ms",
                    "cost_nanos",
                    "labels",
                ],
                name="usage_request_log",
            ),
            models.Index(fields=["arrived_at"], name="usage_arrived"),
        ]

    def __str__(self) -> str:
        return self.request_id.hex

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def duration_ms(self) -> int:
        """Return what it took from arrival to end."""
        return max(0, round((self.finished_at - self.arrived_at) / timedelta(milliseconds=1)))


class WastedAttempt(models.Model):
    """What an attempt generated that did not end its request: nobody is billed for its
    `completion_tokens`, what else it generated another attempt went on from. Written once."""

    is_audited = False

    request_id = models.UUIDField(editable=False)
    attempt = models.PositiveSmallIntegerField()
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_index=False)
    api_key = models.ForeignKey(
        ApiKey, verbose_name="API key", on_delete=models.PROTECT, db_index=False
    )
    tier = models.CharField(max_length=40)
    pool = models.CharField(max_length=100)
    model = models.CharField(max_length=200)
    adapter = models.CharField(max_length=200, default="", blank=True)
    worker_id = models.CharField(max_length=200, null=True, blank=True)
    completion_tokens = models.PositiveIntegerField()
    generated_tokens = models.PositiveIntegerField(default=0)
    reason = models.CharField(max_length=80)
    ended_at = models.DateTimeField()
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)
    labels = models.JSONField(null=True, blank=True)

    objects = ScopedManager["WastedAttempt"]()

    class Meta:
        ordering = ["-request_id", "attempt"]
        constraints = [
            models.UniqueConstraint(fields=["request_id", "attempt"], name="wasted_attempt_once")
        ]
        indexes = [models.Index(fields=["tenant", "ended_at"], name="waste_tenant_ended")]

    def __str__(self) -> str:
        return f"{self.request_id.hex} attempt {self.attempt}"


def wasted_attempts_of(tenant_id: uuid.UUID) -> Iterator[WastedAttempt]:
    """Return all of a tenant's, oldest first, a page at a time."""
    attempts = WastedAttempt.objects.filter(tenant_id=tenant_id)
    return attempts.order_by("request_id", "attempt").iterator(chunk_size=2000)


class EngineTokenCounter(models.Model):
    """What the engine of one worker's life had generated by its own count when nothing was open
    there: the newest report of that worker. Nobody's usage; for fsck."""

    pool = models.CharField(max_length=100)
    worker_id = models.CharField(max_length=200)
    generated_tokens = models.PositiveBigIntegerField()
    unbilled_tokens = models.PositiveBigIntegerField(
        help_text="Of these, tokens of requests that leave no usage record."
    )
    started_at = models.DateTimeField()
    counted_at = models.DateTimeField()
    is_final = models.BooleanField(help_text="Reported at the end of a drain.")
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-counted_at"]
        constraints = [
            models.UniqueConstraint(fields=["pool", "worker_id"], name="engine_token_counter_once")
        ]

    def __str__(self) -> str:
        return self.worker_id


class QuarantineCause(models.TextChoices):
    """Why an entry could not become a record. All but the first may be the doing of whoever got
    into a worker."""

    INVALID = "invalid", "can be no record"
    UNPROVEN = "unproven", "no gateway has admitted it"
    BEYOND_RESERVATION = "beyond_reservation", "more than was reserved"
    PRICES = "prices", "other prices than held"
    REPEATED = "repeated", "more than is on record"


class UsageProofStart(models.Model):
    """Since when requests are admitted with a proof, of a deployment that had workers before there
    were any; at most one row. Their entries must bear it, those of earlier ones need not yet."""

    is_audited = False

    at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.at)


class UsageQuarantine(models.Model):
    """An entry of a usage stream that could not become a record; kept for a person to look at."""

    id = models.BigAutoField(primary_key=True)
    pool = models.CharField(max_length=100)
    stream_id = models.CharField(max_length=50)
    entry = models.BinaryField(help_text="Raw bytes of the stream entry.")
    reason = models.CharField(max_length=500)
    cause = models.CharField(
        max_length=20,
        choices=QuarantineCause,
        default=QuarantineCause.INVALID,
        db_default=QuarantineCause.INVALID,
    )
    quarantined_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-id"]
        verbose_name = "quarantined usage entry"
        verbose_name_plural = "quarantined usage entries"
        constraints = [
            # With the entry: a Redis that was restored from an old copy gives ids out again.
            models.UniqueConstraint("pool", "stream_id", MD5("entry"), name="usage_quarantine_once")
        ]

    def __str__(self) -> str:
        return f"{self.pool} {self.stream_id}"


def _ms(moment: datetime) -> int:
    """Return Unix milliseconds, clamped to what an id can hold."""
    return max(0, min(int(moment.timestamp() * 1000), (1 << 48) - 1))
