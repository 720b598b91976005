"""How often workers have loaded adapters, and for how long engines stood still for that."""

from django.db import models

from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant


class AdapterLoads(models.Model):
    """Of one version, by its opaque name, on a day (UTC). `counted` and `counted_us` are what its
    pool's Redis had counted of it ever since it began, when this was written last: what it counts
    beyond that is new."""

    is_audited = False

    pk = models.CompositePrimaryKey("tenant_id", "opaque_name", "day")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    opaque_name = models.CharField(max_length=64)
    day = models.DateField()
    loads = models.PositiveBigIntegerField()
    load_us = models.PositiveBigIntegerField("loading (microseconds)")
    counted = models.PositiveBigIntegerField()
    counted_us = models.PositiveBigIntegerField("counted loading (microseconds)")

    objects = ScopedManager["AdapterLoads"]()

    class Meta:
        indexes = [models.Index(fields=["day"], name="adapter_loads_day")]

    def __str__(self) -> str:
        return f"{self.opaque_name[:12]} {self.day}"
