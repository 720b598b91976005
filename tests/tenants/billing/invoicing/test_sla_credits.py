"""What is credited for promises that were not kept, from measured requests to the ledger."""

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from gpu_workers.protocol.messages import Outcome
from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.invoicing.sla_credits import Schedule
from tenants.billing.invoicing.usage_source import Attainment, Measured
from tenants.billing.ledger import credit, posting
from tenants.billing.models import (
    AccountName,
    Invoice,
    InvoiceLine,
    InvoiceState,
    LedgerAccount,
    LedgerTransaction,
    LineKind,
    Promise,
    Seller,
    SlaCreditStep,
    TransactionKind,
)
from tenants.models import Project, Tier
from tests.support.billing.billed_usage import (
    DEAR,
    NOON,
    OCTOBER,
    SEPTEMBER,
    hours_of,
    use,
    use_at,
    use_slowly,
)
from tests.support.billing.prepaid import reserve
from tests.support.refusals import raises_conflict

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]


@pytest.fixture(autouse=True)
def _promise(acme: Project) -> None:
    Tier.objects.filter(name="premium").update(
        ttft_target_ms=500, inter_token_target_ms=50, uptime_percent=Decimal("99.5")
    )


def invoice_of(project: Project) -> Invoice:
    invoice = draft_invoice(project.tenant, OCTOBER)
    assert invoice is not None
    return invoices.issue(invoice.id)


def balance(project: Project, account: AccountName) -> int:
    return LedgerAccount.objects.get(tenant=project.tenant, name=account).balance_nanos


def test_slow_first_tokens_are_credited_in_the_ledger_and_on_the_invoice(acme: Project) -> None:
    """40 hours of the 744 of October were slow: 94.6 % against 99 %, a shortfall of 4.4 points."""
    cost = use_at(acme, hours_of(OCTOBER, range(40, 80), 2), prices=DEAR, ttft_ms=500)
    cost += use_at(acme, hours_of(OCTOBER, range(40), 2), prices=DEAR, ttft_ms=501)
    invoice = invoice_of(acme)
    line = invoice.lines.get(kind=LineKind.SLA_CREDIT)
    assert (line.promise, line.tier, line.credit_percent) == ("ttft", "premium", 10)
    assert line.promised_percent == Decimal(99)
    assert line.measured_percent == (Decimal(100) * 704 / 744).quantize(Decimal("0.000001"))
    assert -line.amount_nanos == line.granted_nanos == cost // 10
    assert invoice.due_nanos == cost - cost // 10
    assert balance(acme, AccountName.RECEIVABLE) == invoice.due_nanos
    assert balance(acme, AccountName.SLA_EXPENSE) == cost // 10
    assert list(invoice_problems()) == []


def test_of_several_broken_promises_the_one_with_the_highest_credit_counts(acme: Project) -> None:
    use_slowly(acme)
    use_at(acme, hours_of(OCTOBER, range(80, 84), 2), outcome=Outcome.FAILED, ttft_ms=None)
    use(acme, prices=DEAR)
    line = invoice_of(acme).lines.get(kind=LineKind.SLA_CREDIT)
    assert (line.promise, line.credit_percent) == ("ttft", 25)


def test_uptime_is_the_hours_share_of_requests_that_were_served(acme: Project) -> None:
    """Four hours in which nothing was served, and eight in which half was, of the 744 of
    October."""
    down = {"outcome": Outcome.FAILED, "ttft_ms": None}
    use_at(acme, hours_of(OCTOBER, range(4), 4), **down)
    use_at(acme, hours_of(OCTOBER, range(4, 12), 2), **down)
    use_at(acme, hours_of(OCTOBER, range(4, 12), 2))
    use_at(acme, hours_of(OCTOBER, range(12, 72)), prices=DEAR)
    line = invoice_of(acme).lines.get(kind=LineKind.SLA_CREDIT)
    assert (line.promise, line.credit_percent) == ("uptime", 25)
    assert line.measured_percent == (Decimal(100) * 736 / 744).quantize(Decimal("0.000001"))


def test_a_promise_that_was_kept_is_credited_nothing(acme: Project) -> None:
    use_at(acme, hours_of(OCTOBER, range(744)), prices=DEAR)
    use_at(acme, hours_of(OCTOBER, range(7)), prices=DEAR, ttft_ms=9999)
    assert not invoice_of(acme).lines.filter(kind=LineKind.SLA_CREDIT).exists()


def test_where_credit_paid_already_it_stays_as_credit(acme: Project) -> None:
    posting.post(
        [
            posting.Posting(
                tenant_id=acme.tenant.id,
                kind=TransactionKind.TOP_UP,
                reference="top up",
                entries=[
                    posting.Entry(account=AccountName.CASH, nanos=100 * 10**9),
                    posting.Entry(account=AccountName.PREPAID_CREDIT, nanos=-100 * 10**9),
                ],
            )
        ]
    )
    use_slowly(acme)
    cost = use(acme, prices=DEAR)
    invoice = invoice_of(acme)
    line = invoice.lines.get(kind=LineKind.SLA_CREDIT)
    assert (line.amount_nanos, line.granted_nanos) == (0, cost // 4)
    assert (invoice.payable_nanos, invoice.state) == (0, InvoiceState.PAID)
    assert balance(acme, AccountName.SLA_CREDIT) == cost // 4
    assert list(invoice_problems()) == []


def test_credits_are_posted_once_and_the_other_way_round_when_the_invoice_is_void(
    acme: Project,
) -> None:
    use_slowly(acme)
    cost = use(acme, prices=DEAR)
    first = invoice_of(acme)
    invoices.void(first.id, reason="wrong address")
    assert balance(acme, AccountName.RECEIVABLE) == cost
    assert balance(acme, AccountName.SLA_EXPENSE) == 0
    second = invoice_of(acme)
    assert second.due_nanos == first.due_nanos
    posted = LedgerTransaction.objects.filter(kind=TransactionKind.SLA_CREDIT)
    assert sorted(posted.values_list("reference", flat=True)) == sorted(
        [f"invoice:{first.id}:sla", f"invoice:{first.id}:void", f"invoice:{second.id}:sla"]
    )
    assert list(invoice_problems()) == []


def test_a_void_takes_nothing_that_open_requests_have_reserved(
    acme: Project, policy: Redis
) -> None:
    use_slowly(acme)
    use(acme, prices=DEAR)
    draft = draft_invoice(acme.tenant, OCTOBER)
    assert draft is not None
    credit.pay(acme.tenant.id, 13 * 10**9, reference="BANK-1")
    invoices.issue(draft.id)
    reserve(policy, acme.tenant.id, 13 * 10**9 + 1)
    with raises_conflict(
        "insufficient_credit", free_nanos=3_249_999_999, needed_nanos=3_250_000_000
    ):
        invoices.void(draft.id, reason="paid before")
    assert Invoice.objects.get().state == InvoiceState.ISSUED
    assert balance(acme, AccountName.SLA_CREDIT) == 13 * 10**9 // 4
    reserve(policy, acme.tenant.id, -1)
    invoices.void(draft.id, reason="paid before")
    assert balance(acme, AccountName.SLA_CREDIT) == 0


def test_a_month_that_is_charged_late_earns_its_credit(acme: Project) -> None:
    """September was never invoiced, and October kept its promises."""
    in_september = NOON - timedelta(days=30)
    use_slowly(acme, SEPTEMBER)
    slow = use(acme, in_september, prices=DEAR)
    own = use(acme, prices=DEAR)
    invoice = invoice_of(acme)
    line = invoice.lines.get(kind=LineKind.SLA_CREDIT)
    assert (line.period, line.credit_percent) == (SEPTEMBER, 25)
    assert line.granted_nanos == slow // 4
    assert line.description.endswith("in 2026-09")
    assert invoice.due_nanos == slow + own - slow // 4
    assert list(invoice_problems()) == []


def test_usage_that_comes_after_its_month_was_invoiced_earns_its_share_once(acme: Project) -> None:
    in_september = NOON - timedelta(days=30)
    for month in (SEPTEMBER, OCTOBER):
        use_slowly(acme, month)
    early = use(acme, in_september, prices=DEAR)
    first = draft_invoice(acme.tenant, SEPTEMBER)
    assert first is not None
    invoices.issue(first.id)
    late = use(acme, in_september, prices=DEAR)
    own = use(acme, prices=DEAR)
    second = invoice_of(acme)
    credited = InvoiceLine.objects.filter(kind=LineKind.SLA_CREDIT).order_by(
        "invoice__period", "period"
    )
    assert list(credited.values_list("invoice", "period", "granted_nanos")) == [
        (first.id, SEPTEMBER, early // 4),
        (second.id, SEPTEMBER, late // 4),
        (second.id, OCTOBER, own // 4),
    ]
    assert list(invoice_problems()) == []


def test_without_a_schedule_nothing_is_credited(acme: Project) -> None:
    SlaCreditStep.objects.all().delete()
    use_slowly(acme)
    use(acme, prices=DEAR)
    assert not invoice_of(acme).lines.filter(kind=LineKind.SLA_CREDIT).exists()


def test_a_months_credits_are_never_more_than_the_sellers_share_of_it(acme: Project) -> None:
    Seller.objects.update(sla_credit_cap_percent=10)
    use_slowly(acme)
    cost = use(acme, prices=DEAR)
    line = invoice_of(acme).lines.get(kind=LineKind.SLA_CREDIT)
    assert (line.credit_percent, line.granted_nanos) == (25, cost // 10)
    assert list(invoice_problems()) == []


@given(
    kept=st.integers(0, 1000),
    charge=st.integers(1, 10**15),
    points=st.lists(st.integers(0, 99), min_size=1, max_size=5, unique=True),
)
def test_a_credit_never_exceeds_the_charge_and_grows_with_the_shortfall(
    kept: int, charge: int, points: list[int]
) -> None:
    tier = Tier(name="t", uptime_percent=Decimal("99.9"))
    steps = [
        SlaCreditStep(
            promise=Promise.TTFT, shortfall_points=Decimal(point), credit_percent=place * 20
        )
        for place, point in enumerate(sorted(points), 1)
    ]
    schedule = Schedule(tiers={"t": tier}, steps=steps)

    def credit(kept: int) -> int:
        fine = Measured(kept=1, total=1)
        attained = Attainment(
            tenant_id=tier.id,
            tier="t",
            model="m",
            ttft=Measured(kept=kept, total=1000),
            inter_token=fine,
            uptime=fine,
        )
        found = schedule.credits([attained], {("t", "m"): charge})
        return found[0].credit_nanos if found else 0

    assert 0 <= credit(kept) <= charge
    assert credit(min(1000, kept + 7)) <= credit(kept)
    assert credit(990) == 0
