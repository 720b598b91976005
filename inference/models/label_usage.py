"""Usage summed up by whom it was for: by the labels that projects have chosen to record."""

from typing import Final

from django.db import models

from gpu_workers.protocol.labels import MAX_NAME_CHARACTERS, MAX_VALUE_CHARACTERS
from inference.models.rollup import Counters
from tenants.isolation.scoping import ScopedManager
from tenants.models import Project, Tenant

# What a row is the sum of; in the order of the key.
LABEL_OWNERS: Final = ("tenant_id", "day", "name", "value", "project_id")


class LabelUsage(Counters):
    """Of a day (UTC), for one value of one name. A request counts once for each name that it has;
    one that has none is not here."""

    pk = models.CompositePrimaryKey(*LABEL_OWNERS)
    # Whoever writes here has checked both against the key that the record names.
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    day = models.DateField()
    name = models.CharField(max_length=MAX_NAME_CHARACTERS)
    value = models.CharField(max_length=MAX_VALUE_CHARACTERS)

    objects = ScopedManager["LabelUsage"]()

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.day} {self.name}"
