"""What was sent where, and what came back: the log that a tenant sees."""

import uuid
from enum import StrEnum
from typing import Final

from django.db import models
from django.utils import timezone

from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant
from tenants.webhooks.models.endpoint import Endpoint
from tenants.webhooks.models.event import Event
from tenants.webhooks.problems import Problem

MAX_EXCERPT_CHARACTERS: Final = 1000

_PROBLEMS: Final = [(problem.value, problem.value.replace("_", " ")) for problem in Problem]


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class Delivery(models.Model):
    """One event for one endpoint, until it was taken or given up."""

    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="deliveries")
    endpoint = models.ForeignKey(
        Endpoint, on_delete=models.CASCADE, related_name="deliveries", db_index=False
    )
    state = models.CharField(
        max_length=20,
        default=DeliveryState.PENDING.value,
        choices=[(state.value, state.value) for state in DeliveryState],
    )
    attempts = models.PositiveIntegerField(default=0, help_text="Attempts in total.")
    # Of the attempts, those since it was made or redelivered by hand: where the back-off stands.
    tries = models.PositiveIntegerField("attempts since queued", default=0)
    # While an attempt is being made, when another worker may take it to be lost.
    next_attempt_at = models.DateTimeField(null=True, blank=True, default=timezone.now)
    last_status_code = models.PositiveSmallIntegerField(null=True, blank=True)
    last_problem = models.CharField(max_length=30, blank=True, default="", choices=_PROBLEMS)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    finished_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ScopedManager["Delivery"]()

    class Meta:
        verbose_name = "webhook delivery"
        verbose_name_plural = "webhook deliveries"
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["event", "endpoint"], name="webhook_delivery_once"),
            models.UniqueConstraint(fields=["id", "tenant"], name="webhook_delivery_of_tenant"),
            models.CheckConstraint(
                condition=models.Q(state=DeliveryState.PENDING.value, next_attempt_at__isnull=False)
                | ~models.Q(state=DeliveryState.PENDING.value) & models.Q(next_attempt_at=None),
                name="webhook_delivery_due_while_pending",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_attempt_at"],
                condition=models.Q(state=DeliveryState.PENDING.value),
                name="webhook_delivery_due",
            ),
            models.Index(
                fields=["finished_at"],
                condition=models.Q(state=DeliveryState.FAILED.value),
                name="webhook_delivery_failed",
            ),
            models.Index(
                fields=["endpoint", "-created_at", "-id"], name="webhook_delivery_of_endpoint"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.event_id} to {self.endpoint_id}"


class DeliveryAttempt(models.Model):
    """One request that was sent, or could not be."""

    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    delivery = models.ForeignKey(
        Delivery, on_delete=models.CASCADE, related_name="log", db_index=False
    )
    number = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    duration_ms = models.PositiveIntegerField("duration (ms)")
    status_code = models.PositiveSmallIntegerField(null=True, blank=True)
    problem = models.CharField(max_length=30, blank=True, default="", choices=_PROBLEMS)
    detail = models.CharField(max_length=300, blank=True, default="")
    response_excerpt = models.CharField(
        max_length=MAX_EXCERPT_CHARACTERS,
        blank=True,
        default="",
        help_text="Start of the response body.",
    )

    objects = ScopedManager["DeliveryAttempt"]()

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["delivery", "number"], name="webhook_attempt_number")
        ]

    def __str__(self) -> str:
        return f"attempt {self.number}"
