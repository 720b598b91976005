"""What an organisation has to do with its operator: money, webhooks, a log of who did what."""

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.policy import LimitName
from tenants.access.quotas import add_quota, change_quota
from tenants.audit.log import record, seal_now
from tenants.billing.invoicing import invoices
from tenants.billing.ledger.credit import adjust, grant_promotion, top_up
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.billing.models import Invoice, InvoiceLine, LedgerTransaction, LineKind, Seller
from tenants.billing.periods import month_before, month_of, months_before
from tenants.isolation.audit_actor import Verb, audit_actor
from tenants.models import AuditEvent, Project, Tenant, User
from tenants.money import NANOS_PER_DOLLAR
from tenants.webhooks.endpoints import add_endpoint, change_endpoint, rotate_secret
from tenants.webhooks.event_types import EventType
from tenants.webhooks.models import Delivery, DeliveryAttempt, Endpoint, Event
from tests.support.servers import servers

_HOUR: Final = timedelta(hours=1)
_ADDRESS: Final = "198.51.100.23"
# Of a month, in dollars, by project and model.
_USED: Final = ((0, "llama-3.1-70b", 812), (0, "llama-3.1-8b", 64), (1, "llama-3.1-8b", 131))
Answers = list[tuple[int | None, str]]
# Of what, how many hours ago, and with which status and problem each attempt ended.
_DELIVERIES: Final[list[tuple[EventType, float, Answers]]] = [
    (EventType.INVOICE_PAID, 400, [(200, "")]),
    (EventType.INVOICE_ISSUED, 300, [(500, "status"), (None, "timeout"), (204, "")]),
    (EventType.BALANCE_LOW, 60, [(404, "status")] * 5),
    (EventType.INVOICE_ISSUED, 1.5, [(503, "status"), (None, "connect_failed")]),
]


@dataclass(frozen=True, kw_only=True)
class Affairs:
    invoice: Invoice
    transaction: LedgerTransaction
    endpoint: Endpoint
    delivery: Delivery
    event: AuditEvent


def have_affairs(acme: Tenant, projects: list[Project], prepaid: Tenant, alice: User) -> Affairs:
    """Write them to the database and the dispatch Redis; within an operator's scope."""
    seller = Seller.objects.create(
        name="Penstock Ltd",
        address="1 Mill Lane\nLeeds LS1 4AP\nUnited Kingdom",
        email="billing@penstock.example",
        payment_instructions="Bank of Leeds, IBAN GB00 BOLE 0000 0000 0000 00",
    )
    this_month = month_of(datetime.now(UTC).date())
    issued = [
        _month(acme, projects, seller, months_before(this_month, ago)) for ago in (4, 3, 2, 1)
    ]
    for invoice in issued[:3]:
        invoices.pay(invoice.id, reference=f"transfer of {invoice.month}")
    grant_promotion(
        acme.id, 50 * NANOS_PER_DOLLAR, reference="welcome", memo="Welcome to Penstock",
        expires_at=datetime.now(UTC) + timedelta(days=19),
    )  # fmt: skip
    adjust(
        acme.id, -12_500_000_000, reference="ticket 4711", memo="Goodwill for the outage of 3 May"
    )
    _charge(acme, this_month, ((0, "llama-3.1-8b", 3),))
    _prepay(prepaid)
    endpoint, delivery = _hook(acme)
    return Affairs(
        invoice=Invoice.objects.get(id=issued[-1].id),
        transaction=LedgerTransaction.objects.filter(tenant=acme, kind="usage").latest("sequence"),
        endpoint=endpoint,
        delivery=delivery,
        event=_log(acme, projects, endpoint, alice),
    )


def _charge(tenant: Tenant, first: date, used: tuple[tuple[int, str, int], ...]) -> None:
    post_usage(
        [
            UsageCharge(
                tenant_id=tenant.id,
                model=model,
                day=first,
                nanos=dollars * NANOS_PER_DOLLAR + 123_456_789,
                requests=dollars * 410,
            )
            for _, model, dollars in used
        ],
        batch_id=uuid.uuid4(),
    )


def _month(acme: Tenant, projects: list[Project], seller: Seller, period: date) -> Invoice:
    _charge(acme, period, _USED)
    invoice = Invoice.objects.create(
        tenant=acme, seller=seller, period=period, usage_until=datetime.now(UTC), buyer_name="Acme"
    )
    lines = [
        InvoiceLine(
            tenant=acme, invoice=invoice, position=position + 1, kind=LineKind.USAGE,
            period=period, project_id=projects[place].id, project_name=projects[place].name,
            model=model, tier="premium", requests=dollars * 410, prompt_tokens=dollars * 1_204_113,
            cached_tokens=dollars * 310_007, completion_tokens=dollars * 198_431,
            amount_nanos=dollars * NANOS_PER_DOLLAR + 123_456_789,
        )
        for position, (place, model, dollars) in enumerate(_USED)
    ]  # fmt: skip
    credit = 50_353_000_000
    lines.append(
        InvoiceLine(
            tenant=acme, invoice=invoice, position=len(lines) + 1, kind=LineKind.SLA_CREDIT,
            period=period, tier="premium", promise="ttft", promised_percent=Decimal(99),
            measured_percent=Decimal("98.412"), credit_percent=5, granted_nanos=credit,
            amount_nanos=-credit,
        )
    )  # fmt: skip
    InvoiceLine.objects.bulk_create(lines)
    invoice.add_up(lines)
    invoice.save()
    return invoices.issue(invoice.id)


def _prepay(tenant: Tenant) -> None:
    top_up(tenant.id, 500 * NANOS_PER_DOLLAR, reference="transfer 2231", memo="Bank transfer")
    grant_promotion(
        tenant.id, 25 * NANOS_PER_DOLLAR, reference="spring",
        expires_at=datetime.now(UTC) + timedelta(days=5),
    )  # fmt: skip
    today = datetime.now(UTC).date()
    _charge(tenant, month_before(today), ((0, "llama-3.1-8b", 61),))
    with Redis.from_url(servers().dispatch_redis.url) as redis:
        counted = {"reserved": 4_310_000_000, "settled": 0}
        redis.hset(keys.tenant_balance(str(tenant.id)), mapping=counted)


def _hook(tenant: Tenant) -> tuple[Endpoint, Delivery]:
    endpoint = add_endpoint(
        tenant, url="https://93.184.216.34/", description="finance bot",
        event_types=["balance.low", "invoice.issued", "invoice.paid"],
    ).endpoint  # fmt: skip
    rotate_secret(endpoint, overlap=timedelta(days=1))
    now = datetime.now(UTC)
    Endpoint.objects.filter(id=endpoint.id).update(
        url="https://hooks.acme.example/penstock", created_at=now - timedelta(days=120)
    )
    deliveries = [
        _delivery(endpoint, kind, now - hours * _HOUR, answers)
        for kind, hours, answers in _DELIVERIES
    ]
    return Endpoint.objects.get(id=endpoint.id), deliveries[1]


def _delivery(endpoint: Endpoint, kind: EventType, at: datetime, answers: Answers) -> Delivery:
    event = Event.objects.create(
        tenant=endpoint.tenant, type=kind, key=str(uuid.uuid4()), occurred_at=at, fanned_out_at=at,
        data={"invoice_id": str(uuid.uuid4()), "number": "PS-2026-000004", "month": "2026-04",
              "payable_nanos": 956_980_000_000, "due_on": "2026-05-15"},
    )  # fmt: skip
    (status, problem), is_young = answers[-1], at > datetime.now(UTC) - 2 * _HOUR
    state = "delivered" if not problem else "pending" if is_young else "failed"
    delivery = Delivery.objects.create(
        tenant=endpoint.tenant, event=event, endpoint=endpoint, state=state,
        attempts=len(answers), last_status_code=status, last_problem=problem, created_at=at,
        next_attempt_at=datetime.now(UTC) + _HOUR if state == "pending" else None,
        finished_at=None if state == "pending" else at + len(answers) * _HOUR,
    )  # fmt: skip
    for number, (code, what) in enumerate(answers):
        DeliveryAttempt.objects.create(
            tenant=endpoint.tenant, delivery=delivery, number=number + 1,
            started_at=at + number * _HOUR, duration_ms=183 if code else 10_004,
            status_code=code, problem=what,
            response_excerpt='{"error": "upstream is restarting"}' if what and code else "",
        )  # fmt: skip
    return delivery


def _log(acme: Tenant, projects: list[Project], endpoint: Endpoint, alice: User) -> AuditEvent:
    with audit_actor(alice.as_actor(), _ADDRESS):
        record(Verb.SIGNED_IN, alice, tenant_id=acme.id)
        quota = add_quota(
            acme,
            limit=LimitName.TOKENS_PER_DAY,
            value=20_000_000,
            is_hard=True,
            project_id=projects[1].id,
        )
        seal_now()
        change_quota(quota, value=40_000_000, is_hard=False)
        change_endpoint(endpoint, event_types=None)
        seal_now()
    return AuditEvent.objects.filter(record_id=str(quota.id), verb="changed").latest("sequence")
