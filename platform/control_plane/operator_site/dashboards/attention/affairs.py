"""What needs attention of tenants' affairs: invoices, payments, webhooks."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, Min, Q
from django.urls import reverse
from django.utils import timezone

from control_plane.operator_site.dashboards.attention.concern import MOST, Concern, many, more
from tenants.billing.models.invoice import Invoice, InvoiceState
from tenants.billing.models.ledger import AccountName, LedgerAccount
from tenants.billing.models.payment import ProviderEvent
from tenants.billing.models.sla import SlaDecision, SlaReview
from tenants.money import dollars
from tenants.webhooks.models.delivery import Delivery, DeliveryState
from tenants.webhooks.models.endpoint import DisabledReason, Endpoint
from tenants.webhooks.problems import Problem

TENANTS_NAMED: Final = 3
_FAILED_SINCE: Final = timedelta(days=7)


def of_billing() -> Iterator[Concern]:
    held = Invoice.objects.filter(state=InvoiceState.DRAFT).exclude(blocked_reason="")
    for invoice in held.order_by("drafted_at")[:MOST]:
        yield Concern(
            what=f"The invoice of {invoice.buyer_name} for {invoice.period:%B %Y} is held up",
            since=invoice.drafted_at,
            advice=invoice.blocked_reason,
            link=reverse("admin:billing_invoice_change", args=[invoice.pk]),
            is_bad=True,
        )
    yield from more(held.count(), "held-up invoice", reverse("admin:billing_invoice_changelist"))
    waiting = SlaReview.objects.filter(decision=SlaDecision.HELD).select_related("invoice")
    for review in waiting.order_by("decided_at")[:MOST]:
        invoice = review.invoice
        yield Concern(
            what=f"The SLA credit of {invoice.buyer_name} for {invoice.period:%B %Y} is held",
            since=review.decided_at,
            advice=f"{review.reason} Release or refuse it: the draft is not issued until then.",
            link=reverse("admin:billing_invoice_change", args=[invoice.pk]),
        )
    yield from more(waiting.count(), "held SLA credit", reverse("admin:billing_invoice_changelist"))
    yield from of_payments()


def of_payments() -> Iterator[Concern]:
    puzzling = ProviderEvent.objects.unresolved()
    for event in puzzling.order_by("id")[:MOST]:
        yield Concern(
            what=f"{event.provider.capitalize()} told something that does not fit our books",
            since=event.received_at,
            advice=event.reason,
            link=reverse("admin:billing_providerevent_change", args=[event.pk]),
            is_bad=True,
        )
    link = reverse("admin:billing_providerevent_changelist")
    yield from more(puzzling.count(), "puzzling event", link)
    left = LedgerAccount.objects.filter(
        name=AccountName.PREPAID_CREDIT, balance_nanos__gt=0, tenant__closed_at__isnull=False
    )
    for account in left.select_related("tenant").order_by("tenant__closed_at")[:MOST]:
        yield Concern(
            what=f"The closed tenant {account.tenant_id} has {dollars(account.balance_nanos)} left "
            "of what it paid in",
            since=account.tenant.closed_at,
            advice="Pay it back, and book that with manage.py refund_credit.",
            link=reverse("admin:tenants_tenant_change", args=[account.tenant_id]),
        )
    link = reverse("admin:billing_ledgeraccount_changelist")
    yield from more(left.count(), "closed tenant with credit", link)


def of_webhooks() -> Iterator[Concern]:
    now = timezone.now()
    yield from failed_deliveries(now)
    given_up = (DisabledReason.FAILING.value, DisabledReason.GONE.value)
    found = Endpoint.objects.filter(
        Q(is_enabled=True, failing_since__isnull=False)
        | Q(disabled_reason__in=given_up, disabled_at__gte=now - _FAILED_SINCE)
    )
    for endpoint in found.select_related("tenant").order_by("created_at", "id")[:MOST]:
        state = "is failing" if endpoint.is_enabled else "was disabled after it failed"
        yield Concern(
            what=f"A webhook endpoint of {endpoint.tenant.name} {state}",
            since=endpoint.failing_since if endpoint.is_enabled else endpoint.disabled_at,
            advice="Its deliveries say why; the tenant has been told.",
            link=reverse("admin:webhooks_endpoint_change", args=[endpoint.pk]),
            is_bad=not endpoint.is_enabled,
        )
    yield from more(
        found.count(), "failing webhook endpoint", reverse("admin:webhooks_endpoint_changelist")
    )


def failed_deliveries(now: datetime) -> Iterator[Concern]:
    """Yield what was given up in the last week; what a disabled endpoint left is said of the
    endpoint."""
    failed = Delivery.objects.filter(
        state=DeliveryState.FAILED.value, finished_at__gte=now - _FAILED_SINCE
    )
    by_tenant = list(
        failed.exclude(last_problem=Problem.ENDPOINT_DISABLED.value)
        .order_by()
        .values("tenant__name")
        .annotate(n=Count("pk"), at=Min("finished_at"))
        .order_by("-n", "tenant__name")
    )
    if by_tenant:
        deliveries = many(
            sum(row["n"] for row in by_tenant), "webhook delivery", "webhook deliveries"
        )
        names = [row["tenant__name"] for row in by_tenant[:TENANTS_NAMED]]
        if len(by_tenant) > TENANTS_NAMED:
            names.append(many(len(by_tenant) - TENANTS_NAMED, "more tenant"))
        yield Concern(
            what=f"{deliveries} given up, of {', '.join(names)}",
            since=min(row["at"] for row in by_tenant),
            advice="Each says what its endpoint answered; it can be sent again from there.",
            link=reverse("admin:webhooks_delivery_changelist")
            + f"?state__exact={DeliveryState.FAILED}",
        )
