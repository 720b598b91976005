"""Usage waits for at most some minutes to be posted, added up, so that a tenant's ledger has one
transaction a minute and not one of each batch (docs/adr/0043).

A charge waits from the transaction that records its usage, and is as exact as that. It is posted
when the tenant's oldest is a minute old, and before that by whoever locks the tenant's ledger
(`posting.lock_balances`): so what moves money or credit finds all usage before it posted.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import DataError, IntegrityError, connection, models
from django.utils import timezone

from tenants.billing.ledger import balances, spend
from tenants.billing.ledger.posting import UsageCharge, lock_balances, note_overdrawn, priced
from tenants.billing.models import WaitingCharge
from tenants.isolation.scoping import operator_scope

log = structlog.get_logger(__name__)

LONGEST_WAIT: Final = timedelta(minutes=1)
_POSTING: Final = "posting of usage"
# Beyond which fsck says that a charge has waited too long.
_GRACE: Final = timedelta(minutes=10)
# Tenants of one transaction.
_CHUNK: Final = 100


def charge_usage(charges: Iterable[UsageCharge]) -> None:
    """Charge usage within the transaction that records it; it is posted later. Locks no ledger, and
    waits while one of these tenants' is locked. Needs the `operator_scope`; raises
    `NegativeCharge`."""
    chargeable = priced(charges)
    if not chargeable:
        return
    with connection.cursor() as cursor:
        rows = json.dumps([_row(each) for each in chargeable])
        cursor.execute("SELECT penstock_ledger_charge(%s::jsonb)", [rows])
    prepaid = balances.prepaid_among({each.tenant_id for each in chargeable})
    spend.raise_after_commit(prepaid)
    note_overdrawn(balances.overdrawn_among(prepaid))


def post_waiting(tenant_ids: Collection[uuid.UUID]) -> None:
    """Post what waits for these tenants, in the open transaction."""
    waiting = WaitingCharge.objects.filter(tenant__in=tenant_ids)
    lock_balances(_tenants_of(waiting))


def post_due(now: datetime | None = None) -> int:
    """Post what waits for each tenant whose oldest charge is a minute old; return for how many.
    Opens transactions of its own, and goes on where one tenant's cannot be posted."""
    with operator_scope(_POSTING):
        since = (now or timezone.now()) - LONGEST_WAIT
        due = _tenants_of(WaitingCharge.objects.filter(since__lte=since))
    return sum(_post_all(due[start : start + _CHUNK]) for start in range(0, len(due), _CHUNK))


def _post_all(tenant_ids: Sequence[uuid.UUID]) -> int:
    try:
        with operator_scope(_POSTING):
            lock_balances(tenant_ids)
    except (DataError, IntegrityError) as error:
        if len(tenant_ids) > 1:
            return sum(_post_all([tenant_id]) for tenant_id in tenant_ids)
        # fsck tells of it as well: a charge that waits for long.
        log.error("usage_not_posted", tenant_id=str(tenant_ids[0]), error=type(error).__name__)
        return 0
    return len(tenant_ids)


def _tenants_of(waiting: "models.QuerySet[WaitingCharge]") -> list[uuid.UUID]:
    tenants = waiting.order_by("tenant_id").values_list("tenant_id", flat=True)
    return list(tenants.distinct())


def waiting_problems(now: datetime | None = None) -> Iterable[str]:
    """Report, for fsck, tenants whose usage has not been posted for long."""
    late = (now or timezone.now()) - LONGEST_WAIT - _GRACE
    for tenant_id in _tenants_of(WaitingCharge.objects.filter(since__lte=late)):
        yield (
            f"Usage of tenant {tenant_id} waits to be posted since before {late:%Y-%m-%d %H:%M}: "
            "see that Celery's beat runs, and its log for usage_not_posted."
        )


def _row(charge: UsageCharge) -> dict[str, object]:
    return {
        "tenant_id": str(charge.tenant_id),
        "model": charge.model,
        "day": charge.day.isoformat(),
        "nanos": charge.nanos,
        "requests": charge.requests,
    }
