"""Where a tenant wants to be told."""

import uuid
from datetime import datetime
from enum import StrEnum
from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant
from tenants.names import one_line
from tenants.webhooks import signing
from tenants.webhooks.event_types import SUBSCRIBABLE, EventType

MAX_URL_CHARACTERS: Final = 2000


class DisabledReason(StrEnum):
    BY_HAND = "by_hand"
    FAILING = "failing"
    GONE = "gone"  # it answered 410


class Endpoint(models.Model):
    """An address that events are sent to. Its secret is made of `salt` and the service's own secret
    when it is needed, and kept nowhere (`signing`)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    url = models.CharField("URL", max_length=MAX_URL_CHARACTERS)
    description = models.CharField(max_length=200, blank=True, default="", validators=[one_line])
    event_types = ArrayField(
        models.CharField(max_length=60),
        null=True,
        blank=True,
        help_text="Leave blank for all event types, including future ones.",
    )
    is_enabled = models.BooleanField("enabled", default=True)
    disabled_reason = models.CharField(
        max_length=20,
        blank=True,
        default="",
        choices=[(reason.value, reason.value.replace("_", " ")) for reason in DisabledReason],
    )
    disabled_at = models.DateTimeField(null=True, blank=True, editable=False)
    # The first failure since the last success; None while it works.
    failing_since = models.DateTimeField(null=True, blank=True, editable=False)
    salt = models.BinaryField(max_length=signing.SALT_BYTES, default=signing.new_salt)
    check_digest = models.BinaryField(max_length=8)
    previous_salt = models.BinaryField(max_length=signing.SALT_BYTES, null=True)
    previous_check_digest = models.BinaryField(max_length=8, null=True)
    previous_expires_at = models.DateTimeField(
        "old secret valid until", null=True, blank=True, editable=False
    )
    rotated_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager["Endpoint"]()

    class Meta:
        verbose_name = "webhook endpoint"
        ordering = ["-created_at"]
        constraints = [
            # What deliveries refer to, so that they cannot name another tenant's endpoint.
            models.UniqueConstraint(fields=["id", "tenant"], name="webhook_endpoint_of_tenant"),
            models.CheckConstraint(
                condition=models.Q(event_types=None)
                | models.Q(event_types__contained_by=[kind.value for kind in SUBSCRIBABLE])
                & models.Q(event_types__len__gt=0),
                name="webhook_endpoint_types_are_known",
            ),
            models.CheckConstraint(
                condition=models.Q(is_enabled=True, disabled_reason="")
                | models.Q(is_enabled=False) & ~models.Q(disabled_reason=""),
                name="webhook_endpoint_disabled_for_a_reason",
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "-created_at", "-id"], name="webhook_endpoint_of_tenant_new"
            )
        ]

    def __str__(self) -> str:
        return str(self.id)

    def wants(self, kind: EventType | str) -> bool:
        return self.event_types is None or kind in self.event_types

    @property
    def secret(self) -> signing.Secret:
        """Return the secret that deliveries are signed with. Raises `signing.SecretLost`."""
        return signing.derive_secret(self.id, bytes(self.salt), bytes(self.check_digest))

    def secrets_at(self, now: datetime) -> list[signing.Secret]:
        """Return what a delivery is signed with: the secret, and while both work the one before it.
        Raises `signing.SecretLost`."""
        secrets = [self.secret]
        if (
            self.previous_salt is not None
            and self.previous_check_digest is not None
            and self.previous_expires_at is not None
            and now < self.previous_expires_at
        ):
            secrets.append(
                signing.derive_secret(
                    self.id, bytes(self.previous_salt), bytes(self.previous_check_digest)
                )
            )
        return secrets
