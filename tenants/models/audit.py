"""The audit log as records. PostgreSQL writes them (`audit/audit.sql`), nobody changes them."""

import json
import uuid
from typing import Any

from django.db import models

from tenants.isolation.scoping import ScopedManager
from tenants.models.tenant import Tenant


class AuditChain(models.Model):
    """The newest event of each chain: a tenant's, or (id zero) of all that has no tenant.

    Not behind a tenant's wall: the web role has no right to the table at all.
    """

    chain = models.UUIDField(primary_key=True)
    sequence = models.PositiveBigIntegerField()
    hash = models.BinaryField(max_length=32)

    def __str__(self) -> str:
        return f"{self.chain} up to {self.sequence}"


class ChainCheckpoint(models.Model):
    """Up to where fsck has found a chain whole: of the audit log, or of a tenant's ledger. `sums`
    are what its records come to until there. Not behind a tenant's wall: the web role has no right
    to the table at all."""

    is_audited = False

    id = models.BigAutoField(primary_key=True)
    log = models.CharField(max_length=40)
    chain = models.UUIDField()
    sequence = models.PositiveBigIntegerField()
    hash = models.BinaryField(max_length=32)
    sums = models.JSONField(default=dict)
    signature = models.CharField(max_length=100)
    verified_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["log", "chain"], name="chain_checkpoint_once")
        ]

    def __str__(self) -> str:
        return f"{self.log} {self.chain} up to {self.sequence}"


class CheckProgress(models.Model):
    """The last slice of a check that fsck has finished: the next run begins after it, so that runs
    that are cut short come to all slices in turn. No trust is put in it: every run that ends has
    checked them all. The web role has no right to it."""

    is_audited = False

    check_name = models.CharField(primary_key=True, max_length=60)
    slice = models.CharField(max_length=100)
    checked_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.check_name} up to {self.slice}"


class AuditEvent(models.Model):
    """Who did what to which record, and when. `changes` holds `{"field": [before, after]}`, or
    `"changed"` for a secret and `"personal"` for what `PersonalDetail` tells.

    Each event's hash covers the one before it in its chain; `tenants/audit/chain.py` has how.
    """

    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, related_name="audit_events", db_index=False
    )
    sequence = models.PositiveBigIntegerField()
    at = models.DateTimeField("time")
    actor_kind = models.CharField(max_length=20)
    actor_id = models.CharField(max_length=200, blank=True)
    verb = models.CharField(max_length=40)
    record_kind = models.CharField(max_length=100, blank=True)
    record_id = models.CharField(max_length=200, blank=True)
    # Text, not jsonb: the hash covers it to the letter.
    changes = models.TextField()
    personal_digest = models.BinaryField(max_length=32)
    previous_hash = models.BinaryField(max_length=32)
    hash = models.BinaryField(max_length=32)

    objects = ScopedManager["AuditEvent"]()

    class Meta:
        ordering = ["-at"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "sequence"], name="audit_sequence_of_tenant"),
            models.UniqueConstraint(
                fields=["sequence"],
                condition=models.Q(tenant=None),
                name="audit_sequence_without_tenant",
            ),
        ]
        indexes = [
            models.Index(fields=["-at", "-sequence"], name="audit_newest"),
            models.Index(fields=["record_id", "-at"], name="audit_of_record"),
            models.Index(fields=["actor_id", "-at"], name="audit_by_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.record_kind} {self.record_id}".strip()

    @property
    def changed_fields(self) -> dict[str, Any]:
        """Return what changed, with the personal part where that was not erased."""
        fields: dict[str, Any] = json.loads(self.changes)
        personal = getattr(self, "personal", None)
        return fields | (json.loads(personal.changes) if personal is not None else {})


class PersonalDetail(models.Model):
    """What of an event may name a person. The event holds a salted digest of it, so that it can be
    erased and the chain stays whole."""

    is_audited = False

    event = models.OneToOneField(
        AuditEvent, primary_key=True, on_delete=models.PROTECT, related_name="personal"
    )
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, related_name="+", db_index=True
    )
    salt = models.BinaryField(max_length=32)
    actor_name = models.CharField(max_length=320, blank=True)
    address = models.CharField(max_length=45, blank=True)
    record_name = models.CharField(max_length=320, blank=True)
    changes = models.TextField()

    objects = ScopedManager["PersonalDetail"]()

    def __str__(self) -> str:
        return f"{self.actor_name} {self.record_name}".strip()
