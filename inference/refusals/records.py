"""Refusals on record: what an export has, what a closing erases, what fsck compares."""

import uuid
from collections.abc import Iterator
from typing import Final

from django.db import connection

from gpu_workers.protocol.refusals import NEWEST
from inference.models.refusal import DailyRefusals, NewestRefusal, RefusalRollup
from inference.room import Room
from tenants import fsck
from tenants.models import Tenant
from tenants.offboarding.export import rows_of
from tenants.permissions import Permission


def exported_refusals(tenant_id: uuid.UUID) -> "Iterator[RefusalRollup]":
    """Return the sums by hour, a page at a time."""
    return RefusalRollup.objects.filter(tenant_id=tenant_id).iterator(chunk_size=2000)


def erase_refusals(tenant: Tenant) -> None:
    """Delete all that is kept of a tenant's refusals; for `close_tenant`."""
    RefusalRollup.objects.filter(tenant=tenant).delete()
    DailyRefusals.objects.filter(tenant=tenant).delete()
    NewestRefusal.objects.filter(tenant=tenant).delete()


def refusal_problems() -> Iterator[str]:
    """Find tenants and days for which the sums by hour and by day differ, and tenants of whose
    refusals more than the newest are kept; for fsck."""
    with connection.cursor() as cursor:
        cursor.execute(_DIFFERENCES)
        for tenant_id, day, by_hours, by_days in cursor.fetchall():
            yield (
                f"Tenant {tenant_id}, {day}: refusals are {by_hours} by hour and {by_days} by day."
            )
        cursor.execute(_TOO_MANY, [NEWEST])
        for tenant_id, kept in cursor.fetchall():
            yield f"Tenant {tenant_id}: {kept} refusals have their sentence, of {NEWEST}."


_DIFFERENCES: Final = """
SELECT tenant_id, day, sum(by_hours) AS by_hours, sum(by_days) AS by_days FROM (
    SELECT tenant_id, (hour AT TIME ZONE 'UTC')::date AS day, model, code, "limit", scope,
        count AS by_hours, 0 AS by_days
    FROM inference_refusalrollup
    UNION ALL
    SELECT tenant_id, day, model, code, "limit", scope, 0, count FROM inference_dailyrefusals
) AS said GROUP BY tenant_id, day, model, code, "limit", scope
HAVING sum(by_hours) <> sum(by_days) ORDER BY tenant_id, day
"""
_TOO_MANY: Final = """
SELECT tenant_id, count(*) FROM inference_newestrefusal GROUP BY tenant_id HAVING count(*) > %s
"""


ROOM: Final = Room(
    exports={
        "refusals": (exported_refusals, Permission.VIEW_USAGE),
        "refusal": (rows_of(NewestRefusal), Permission.VIEW_USAGE),
    },
    erasers=(erase_refusals,),
    checks={"refusals": fsck.whole(refusal_problems)},
)
