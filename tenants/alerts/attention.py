"""What of a tenant its people should look at now, each as far as they may see it. Call it inside
the tenant's scope."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from tenants.alerts.balances import threshold_of
from tenants.billing.ledger.balances import balance_of
from tenants.billing.models import Invoice, InvoiceState
from tenants.models import ApiKey, QuotaAlert, Tenant
from tenants.models.tenant import BillingMode
from tenants.permissions import Permission
from tenants.webhooks.models import DisabledReason, Endpoint

QUOTA_PERCENT: Final = 80
KEY_EXPIRY: Final = timedelta(days=7)
# Of one kind: whoever has more reads the list of that kind.
_MOST: Final = 5


class AttentionKind(StrEnum):
    SUSPENDED = "suspended"
    BALANCE_LOW = "balance_low"
    INVOICE_OVERDUE = "invoice_overdue"
    QUOTA_REACHED = "quota_reached"
    WEBHOOK_DISABLED = "webhook_disabled"
    KEY_EXPIRES = "key_expires"


@dataclass(frozen=True, kw_only=True)
class Attention:
    """`record` is what it is about: an invoice, a quota alert, an endpoint, a key; `nanos` is the
    credit that is left. Urgent is what stops requests, or soon will."""

    kind: AttentionKind
    is_urgent: bool = False
    record: Invoice | QuotaAlert | Endpoint | ApiKey | None = None
    nanos: int | None = None


def needs_attention(
    tenant: Tenant, permissions: frozenset[Permission], now: datetime | None = None
) -> list[Attention]:
    """Return what somebody with these permissions should look at, the urgent first."""
    found = list(_all(tenant, permissions, now or datetime.now(UTC)))
    return sorted(found, key=lambda each: not each.is_urgent)


def _all(tenant: Tenant, permissions: frozenset[Permission], now: datetime) -> Iterator[Attention]:
    if tenant.is_suspended:
        yield Attention(kind=AttentionKind.SUSPENDED, is_urgent=True)
    if Permission.VIEW_BALANCE in permissions:
        yield from _balance(tenant)
    if Permission.VIEW_INVOICES in permissions:
        yield from _invoices(now)
    yield from _quotas(now)
    if Permission.VIEW_WEBHOOKS in permissions:
        yield from _webhooks()
    yield from _keys(now)


def _balance(tenant: Tenant) -> Iterator[Attention]:
    if tenant.billing_mode != BillingMode.PREPAID:
        return
    nanos, threshold = balance_of(tenant.id).credit_nanos, threshold_of(tenant).threshold_nanos
    if nanos <= (threshold or 0):
        yield Attention(kind=AttentionKind.BALANCE_LOW, is_urgent=nanos <= 0, nanos=nanos)


def _invoices(now: datetime) -> Iterator[Attention]:
    overdue = Invoice.objects.filter(state=InvoiceState.ISSUED, due_on__lt=now.date())
    for invoice in overdue.order_by("due_on")[:_MOST]:
        yield Attention(kind=AttentionKind.INVOICE_OVERDUE, is_urgent=True, record=invoice)


def _quotas(now: datetime) -> Iterator[Attention]:
    """Yield the highest threshold that each quota has reached in the day or month that runs."""
    reached = (
        QuotaAlert.objects.filter(
            period__in=(f"{now:%Y-%m-%d}", f"{now:%Y-%m}"), percent__gte=QUOTA_PERCENT
        )
        .select_related("quota__project", "quota__api_key")
        .order_by("quota_id", "-percent")
        .distinct("quota_id")
    )
    for alert in reached[:_MOST]:
        is_full = alert.percent >= 100 and alert.quota.is_hard
        yield Attention(kind=AttentionKind.QUOTA_REACHED, is_urgent=is_full, record=alert)


def _webhooks() -> Iterator[Attention]:
    disabled = Endpoint.objects.filter(is_enabled=False)
    by_itself = disabled.exclude(disabled_reason=DisabledReason.BY_HAND)
    for endpoint in by_itself.order_by("-disabled_at")[:_MOST]:
        yield Attention(kind=AttentionKind.WEBHOOK_DISABLED, record=endpoint)


def _keys(now: datetime) -> Iterator[Attention]:
    expiring = ApiKey.objects.filter(
        revoked_at=None, expires_at__gt=now, expires_at__lte=now + KEY_EXPIRY
    )
    for key in expiring.order_by("expires_at")[:_MOST]:
        yield Attention(kind=AttentionKind.KEY_EXPIRES, record=key)
