"""Requests that gateways refused: counted by hour and day, and the newest with their sentence."""

from typing import Final

from django.db import models

from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant

# What stands for the project and the key of the rest of a tenant that was too varied.
NOBODY: Final = "00000000-0000-0000-0000-000000000000"


class _Reason(models.Model):
    """Why, by what the caller was told. `limit` and `scope` name the limit, where one refused."""

    model = models.CharField(max_length=200)
    code = models.CharField(max_length=80)
    limit = models.CharField(max_length=40)
    scope = models.CharField(max_length=20)

    class Meta:
        abstract = True


class _Count(_Reason):
    """So many refusals. Who writes here has it from a gateway, which knows whose the key is."""

    is_audited = False

    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    count = models.PositiveBigIntegerField()

    class Meta:
        abstract = True


class RefusalRollup(_Count):
    """Of an hour (UTC)."""

    pk = models.CompositePrimaryKey(
        "tenant_id", "hour", "project_id", "api_key_id", "model", "code", "limit", "scope"
    )
    hour = models.DateTimeField()
    # No references: `NOBODY` is none.
    project_id = models.UUIDField()
    api_key_id = models.UUIDField()

    objects = ScopedManager["RefusalRollup"]()

    class Meta:
        indexes = [models.Index(fields=["hour"], name="refusal_rollup_hour")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.hour}"


class DailyRefusals(_Count):
    """Of a day (UTC), over all projects and keys."""

    pk = models.CompositePrimaryKey("tenant_id", "day", "model", "code", "limit", "scope")
    day = models.DateField()

    objects = ScopedManager["DailyRefusals"]()

    class Meta:
        indexes = [models.Index(fields=["day"], name="daily_refusals_day")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.day}"


class NewestRefusal(_Reason):
    """One of the `NEWEST` of its tenant. The message is what the caller was told, without anything
    that the caller had sent. `request_id` is None where the request had none."""

    is_audited = False

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    at = models.DateTimeField()
    request_id = models.UUIDField(null=True)
    project_id = models.UUIDField()
    api_key_id = models.UUIDField()
    status = models.PositiveSmallIntegerField()
    message = models.CharField(max_length=500)

    objects = ScopedManager["NewestRefusal"]()

    class Meta:
        indexes = [models.Index(fields=["tenant", "at", "id"], name="newest_refusal_at")]

    def __str__(self) -> str:
        return f"{self.code} at {self.at}"


class RefusalReporter(models.Model):
    """How far the batches of a gateway process are added: all up to this number."""

    is_audited = False

    process_id = models.UUIDField(primary_key=True)
    number = models.PositiveBigIntegerField()
    seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.process_id)
