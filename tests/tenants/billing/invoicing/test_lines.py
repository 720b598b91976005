"""Lines of invoices: what they are sums of, and what they carry on."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.db.models import Sum

from gpu_workers.protocol.messages import Outcome, Prices
from inference.usage.invoice_source import records_behind
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.ledger import posting
from tenants.billing.ledger.credit_use import credit_used
from tenants.billing.models import (
    AccountName,
    Invoice,
    LineKind,
    TransactionKind,
)
from tenants.models import Project
from tenants.money import NANOS_PER_CENT
from tests.support.billing.billed_usage import CHEAP, DEAR, NOON, OCTOBER, SEPTEMBER, use
from tests.support.billing.issued_invoices import balance, drafted, issued

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]


def test_each_line_is_exactly_the_sum_of_the_records_behind_it(
    acme: Project, globex: Project
) -> None:
    total = use(acme, times=3, prices=CHEAP)
    total += use(acme, times=2, model="other", prices=CHEAP)
    total += use(acme, adapter="poems", prices=CHEAP)
    total += use(acme, tier="batch", prices=CHEAP, outcome=Outcome.CANCELLED)
    use(acme, NOON - timedelta(days=40))
    use(acme, datetime(2026, 11, 1, tzinfo=UTC))
    use(globex, prices=CHEAP)
    draft_invoice(acme.tenant, SEPTEMBER)
    invoice = drafted(acme)
    lines = list(invoice.lines.select_related("invoice"))
    assert [(line.model, line.tier, line.adapter, line.requests) for line in lines] == [
        ("other", "premium", "", 2),
        ("penstock-demo", "batch", "", 1),
        ("penstock-demo", "premium", "", 3),
        ("penstock-demo", "premium", "poems", 1),
    ]
    for line in lines:
        assert line.usage_filter is not None
        behind = records_behind(line.usage_filter).aggregate(
            nanos=Sum("cost_nanos"), prompt=Sum("prompt_tokens")
        )
        assert (line.amount_nanos, line.prompt_tokens) == (behind["nanos"], behind["prompt"])
    assert invoice.charges_nanos == total == invoice.due_nanos


def test_what_is_less_than_a_cent_is_carried_and_nothing_is_lost(acme: Project) -> None:
    """Invoice after invoice: what was asked for and what is carried is what was used."""
    used = 0
    for month in (7, 8, 9, 10):
        at = datetime(2026, month, 9, tzinfo=UTC)
        used += use(acme, at, times=month, prices=Prices(10**9, 10**9 // 3, 10**9 + 7, 999))
        issued(acme, at.date().replace(day=1))
    chain = list(Invoice.objects.order_by("period"))
    assert [invoice.brought_forward_nanos for invoice in chain[1:]] == [
        invoice.carried_nanos for invoice in chain[:-1]
    ]
    assert all(invoice.payable_nanos % NANOS_PER_CENT == 0 for invoice in chain)
    assert any(invoice.carried_nanos for invoice in chain)
    assert sum(invoice.payable_nanos for invoice in chain) + chain[-1].carried_nanos == used
    assert list(invoice_problems()) == []


def test_late_usage_comes_on_the_next_invoice_and_traces_to_its_records(acme: Project) -> None:
    early = use(acme, NOON - timedelta(days=30), times=2)
    first = issued(acme, SEPTEMBER)
    late = use(acme, NOON - timedelta(days=30), times=3)
    own = use(acme, times=4)
    second = issued(acme)
    found = {line.kind: line for line in second.lines.select_related("invoice")}
    assert set(found) == {LineKind.USAGE, LineKind.LATE_USAGE}
    assert (found["late_usage"].amount_nanos, found["late_usage"].requests) == (late, 3)
    assert (found["late_usage"].period, found["usage"].amount_nanos) == (SEPTEMBER, own)
    for line in (*found.values(), first.lines.get()):
        line.invoice = Invoice.objects.get(id=line.invoice_id)
        assert line.usage_filter is not None
        behind = records_behind(line.usage_filter).aggregate(nanos=Sum("cost_nanos"))
        assert behind["nanos"] == line.amount_nanos
    assert first.charges_nanos == early
    assert list(invoice_problems()) == []


def test_credit_pays_first_and_the_invoice_says_which(acme: Project) -> None:
    for kind, source, account, nanos in (
        (
            TransactionKind.PROMOTION,
            AccountName.PROMOTION_EXPENSE,
            AccountName.PROMOTIONAL_CREDIT,
            30,
        ),
        (TransactionKind.TOP_UP, AccountName.CASH, AccountName.PREPAID_CREDIT, 25),
    ):
        entries = [
            posting.Entry(account=source, nanos=nanos),
            posting.Entry(account=account, nanos=-nanos),
        ]
        posting.post(
            [posting.Posting(tenant_id=acme.tenant.id, kind=kind, reference=kind, entries=entries)]
        )
    assert use(acme, times=5) == 90
    invoice = issued(acme)
    paid = invoice.lines.filter(kind=LineKind.PAID_BY_CREDIT).values_list("account", "amount_nanos")
    assert list(paid) == [("promotional_credit", -30), ("prepaid_credit", -25)]
    assert (invoice.charges_nanos, invoice.credits_nanos, invoice.due_nanos) == (90, -55, 35)
    assert balance(acme, AccountName.RECEIVABLE) == 35


def test_credit_that_paid_for_two_months_at_once_is_told_by_month(acme: Project) -> None:
    """One batch of the collector may hold the last request of a month and the first of the next."""
    posting.post(
        [
            posting.Posting(
                tenant_id=acme.tenant.id,
                kind=TransactionKind.TOP_UP,
                reference="top up",
                entries=[
                    posting.Entry(account=AccountName.CASH, nanos=25),
                    posting.Entry(account=AccountName.PREPAID_CREDIT, nanos=-25),
                ],
            )
        ]
    )
    days = (date(2026, 9, 30), OCTOBER)
    posting.post_usage(
        [
            posting.UsageCharge(
                tenant_id=acme.tenant.id, model="penstock-demo", day=day, nanos=18, requests=1
            )
            for day in days
        ],
        batch_id=acme.tenant.id,
    )
    use_of = credit_used([acme.tenant.id], SEPTEMBER, date(2026, 10, 31))
    prepaid = AccountName.PREPAID_CREDIT
    assert use_of == {
        (acme.tenant.id, prepaid, SEPTEMBER): 18,
        (acme.tenant.id, prepaid, OCTOBER): 7,
    }
    only_september = credit_used([acme.tenant.id], SEPTEMBER, days[0])
    assert only_september == {(acme.tenant.id, prepaid, SEPTEMBER): 18}


def test_an_adjustment_in_the_ledger_is_a_line_once(acme: Project) -> None:
    august, september = (datetime(2026, month, 3, tzinfo=UTC) for month in (8, 9))
    use(acme, august, prices=DEAR)
    first = issued(acme, date(2026, 8, 1))
    posting.post(
        [
            posting.Posting(
                tenant_id=acme.tenant.id,
                kind=TransactionKind.ADJUSTMENT,
                reference="goodwill",
                memo="Goodwill for the slow week",
                entries=[
                    posting.Entry(account=AccountName.ADJUSTMENTS, nanos=5 * 10**9),
                    posting.Entry(account=AccountName.RECEIVABLE, nanos=-5 * 10**9),
                ],
            )
        ]
    )
    assert first.payable_nanos == 13 * 10**9
    use(acme, september, prices=DEAR)
    second = issued(acme, SEPTEMBER)
    line = second.lines.get(kind=LineKind.ADJUSTMENT)
    assert (line.description, line.amount_nanos) == ("Goodwill for the slow week", -5 * 10**9)
    assert second.payable_nanos == 8 * 10**9
    use(acme, prices=DEAR)
    third = drafted(acme)
    assert not third.lines.filter(kind=LineKind.ADJUSTMENT).exists()
