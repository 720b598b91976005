"""Tells a prepaid tenant that its balance is low: once each time that it falls to its threshold, by
webhooks and e-mail. The balance is the ledger's: what requests have reserved and not yet used is in
it."""

import uuid
from datetime import UTC, datetime

import structlog

from tenants.billing.ledger.balances import credit_left
from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant
from tenants.models.tenant import BillingMode
from tenants.webhooks.event_types import EventType
from tenants.webhooks.events import publish
from tenants.webhooks.models import BalanceAlert

log = structlog.get_logger(__name__)


def raise_balance_alerts(now: datetime | None = None) -> int:
    """Publish an event for each tenant whose balance fell to its threshold; return for how many."""
    now = now or datetime.now(UTC)
    raised = 0
    with operator_scope("balance alerts"):
        credit = _credit_of_prepaid()
        # Nobody is told that what was never filled is empty.
        BalanceAlert.objects.bulk_create(
            [BalanceAlert(tenant_id=tenant, is_low=nanos == 0) for tenant, nanos in credit.items()],
            ignore_conflicts=True,
        )
        watched = BalanceAlert.objects.filter(tenant__in=credit).order_by("tenant")
        for alert in watched.select_for_update(skip_locked=True, of=("self",)):
            nanos = credit[alert.tenant_id]
            is_low = alert.threshold_nanos is not None and nanos <= alert.threshold_nanos
            if is_low == alert.is_low:
                continue
            alert.is_low = is_low
            alert.save(update_fields=["is_low"])
            if is_low:
                _publish_alert(alert, nanos, now)
                raised += 1
    return raised


def threshold_of(tenant: Tenant) -> BalanceAlert:
    """Return the tenant's alert as it is set, or unsaved with the default threshold. Runs in the
    tenant's scope."""
    found = BalanceAlert.objects.filter(tenant=tenant).first()
    return found or BalanceAlert(tenant=tenant)


def set_threshold(tenant: Tenant, nanos: int | None) -> BalanceAlert:
    """Set the balance, in nano-dollars, at which the tenant is told; None for never. Raises
    `ValidationError`."""
    alert = threshold_of(tenant)
    alert.threshold_nanos = nanos
    alert.full_clean(validate_unique=False)
    BalanceAlert.objects.bulk_create([alert], ignore_conflicts=True)
    BalanceAlert.objects.filter(tenant=tenant).update(threshold_nanos=nanos)
    return alert


def _credit_of_prepaid() -> dict[uuid.UUID, int]:
    """Return what each prepaid tenant has left, in nano-dollars."""
    prepaid = Tenant.objects.filter(billing_mode=BillingMode.PREPAID, closed_at=None)
    return credit_left(list(prepaid.order_by().values_list("id", flat=True)))


def _publish_alert(alert: BalanceAlert, nanos: int, now: datetime) -> None:
    publish(
        alert.tenant_id,
        EventType.BALANCE_LOW,
        {"balance_nanos": nanos, "threshold_nanos": alert.threshold_nanos},
        key=now.isoformat(),
        occurred_at=now,
    )
    log.warning("balance_low", tenant_id=str(alert.tenant_id), balance_nanos=nanos)
