"""E-mails of events, one for each person that is to have it."""

import uuid
from enum import StrEnum

from django.db import models
from django.utils import timezone

from tenants.isolation.scoping import ScopedManager
from tenants.models import Membership, Tenant
from tenants.webhooks.models.event import Event


class EmailState(StrEnum):
    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"


class EmailNotice(models.Model):
    """An event for one member. The address is looked up when it is sent, and kept only there."""

    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="emails")
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="+")
    state = models.CharField(
        max_length=20,
        default=EmailState.PENDING.value,
        choices=[(state.value, state.value) for state in EmailState],
    )
    tries = models.PositiveIntegerField("attempts", default=0)
    next_try_at = models.DateTimeField(
        "next attempt at", null=True, blank=True, default=timezone.now
    )
    sent_at = models.DateTimeField(null=True, blank=True, editable=False)
    problem = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager["EmailNotice"]()

    class Meta:
        verbose_name = "e-mail notice"
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["event", "membership"], name="email_notice_once"),
            models.CheckConstraint(
                condition=models.Q(state=EmailState.PENDING.value, next_try_at__isnull=False)
                | ~models.Q(state=EmailState.PENDING.value) & models.Q(next_try_at=None),
                name="email_notice_due_while_pending",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_try_at"],
                condition=models.Q(state=EmailState.PENDING.value),
                name="email_notice_due",
            ),
            models.Index(
                fields=["sent_at"],
                condition=models.Q(state=EmailState.SENT.value),
                name="email_notice_sent",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.event_id} for {self.membership_id}"
