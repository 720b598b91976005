"""The outbox of what tenants are told."""

import json
import uuid
from datetime import UTC
from typing import Final

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils import timezone

from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant
from tenants.webhooks.event_types import EventType

_TYPES: Final = [(kind.value, kind.value) for kind in EventType]


class Event(models.Model):
    """Something that happened, written in its transaction; published once for each type and key.
    Once it is fanned out there is a delivery for each endpoint and an e-mail for each member that
    are to have it."""

    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    type = models.CharField(max_length=60, choices=_TYPES)
    key = models.CharField(
        max_length=200, help_text="Deduplication key: unique per tenant and type."
    )
    data = models.JSONField(encoder=DjangoJSONEncoder)
    occurred_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    fanned_out_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ScopedManager["Event"]()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "type", "key"], name="webhook_event_once"),
            # What deliveries refer to, so that they cannot name another tenant's event.
            models.UniqueConstraint(fields=["id", "tenant"], name="webhook_event_of_tenant"),
        ]
        indexes = [
            models.Index(
                fields=["created_at"],
                condition=models.Q(fanned_out_at=None),
                name="webhook_event_to_fan_out",
            ),
            models.Index(fields=["-created_at"], name="webhook_event_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.key}"

    @property
    def message_id(self) -> str:
        """Return the header `webhook-id`: the same in every attempt, and at every endpoint."""
        return f"msg_{self.id.hex}"

    def to_body(self) -> str:
        """Return the body, the same text at every attempt once the row has been read from the
        database."""
        moment = self.occurred_at.astimezone(UTC).isoformat(timespec="milliseconds")
        return json.dumps(
            {
                "type": self.type,
                "timestamp": moment.replace("+00:00", "Z"),
                "data": self.data,
            },
            separators=(",", ":"),
        )
