"""Answers that are kept for a while, so that a repeated call finds what the first one did."""

import uuid
from datetime import datetime, timedelta
from typing import Final

from django.db import models
from django.utils import timezone

from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant

KEPT: Final = timedelta(hours=24)
MAX_KEY_CHARACTERS: Final = 255


class IdempotentCallManager(ScopedManager["IdempotentCall"]):
    def forget_old(self, now: datetime | None = None) -> int:
        """Delete calls that are older than `KEPT`; return how many."""
        return self.filter(created_at__lte=(now or timezone.now()) - KEPT).delete()[0]

    def erase(self, tenant: Tenant) -> None:
        """Delete all calls of a tenant that is closed: answers name people."""
        self.filter(tenant=tenant).delete()


class IdempotentCall(models.Model):
    """A call of the management API that came with an `Idempotency-Key`, written in the transaction
    of what it did. `caller` is whose key it is: another caller's has nothing to do with it."""

    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", db_index=False)
    caller = models.CharField(max_length=80)
    key = models.CharField(max_length=MAX_KEY_CHARACTERS)
    # SHA-256 of method, path and body.
    request_digest = models.BinaryField(max_length=32)
    status = models.PositiveSmallIntegerField()
    # JSON, without secrets.
    answer = models.TextField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = IdempotentCallManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "caller", "key"], name="idempotent_call_once"
            ),
        ]
        indexes = [models.Index(fields=["created_at"], name="idempotent_call_oldest")]

    def __str__(self) -> str:
        return f"{self.caller} at {self.created_at:%Y-%m-%d %H:%M}"
