"""How much tenants keep, hour by hour, and what that costs."""

from django.db import models

from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant


class AdapterStorage(models.Model):
    """Of the versions of a tenant on a day (UTC): bytes, as they lie in the store, times the
    `hours` at which they were looked at, the last of which is `last_hour`; and what they cost at
    the price of each hour. An hour in which nobody looked costs nothing."""

    is_audited = False

    pk = models.CompositePrimaryKey("tenant_id", "day")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    day = models.DateField()
    hours = models.PositiveSmallIntegerField()
    last_hour = models.DateTimeField()
    byte_hours = models.PositiveBigIntegerField()
    cost_nanos = models.PositiveBigIntegerField("cost (nano-dollars)")

    objects = ScopedManager["AdapterStorage"]()

    class Meta:
        indexes = [models.Index(fields=["day"], name="adapter_storage_day")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.day}"
