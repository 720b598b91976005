"""Invoices from usage to payment, over the collector, the ledger and PostgreSQL's own guards."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ValidationError
from django.db import DatabaseError, connection, connections, transaction
from django.db.models import Sum

from gpu_workers.protocol.messages import Outcome, Prices
from inference.models import DailyUsage
from inference.usage.invoice_source import records_behind
from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.drafts import draft_invoice, draft_invoices
from tenants.billing.invoicing.month_end import run_month_end
from tenants.billing.ledger import credit, posting
from tenants.billing.ledger.credit_use import credit_used
from tenants.billing.models import (
    AccountName,
    Invoice,
    InvoiceCounter,
    InvoiceLine,
    InvoiceState,
    LedgerAccount,
    LineKind,
    Payment,
    Seller,
    TransactionKind,
)
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tenants.money import NANOS_PER_CENT
from tests.support.billing.billed_usage import AFTER_OCTOBER, NOON, OCTOBER, SEPTEMBER, use

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]

# A dollar a token, so that a few requests come to something.
DEAR = Prices(10**12, 5 * 10**11, 10**12, 1000)
CHEAP = Prices(333_333, 111_111, 777_777, 997)


def drafted(project: Project, month: date = OCTOBER) -> Invoice:
    invoice = draft_invoice(project.tenant, month)
    assert invoice is not None
    return Invoice.objects.get(id=invoice.id)


def issued(project: Project, month: date = OCTOBER) -> Invoice:
    return invoices.issue(drafted(project, month).id)


def balance(project: Project, account: AccountName) -> int:
    found = LedgerAccount.objects.filter(tenant=project.tenant, name=account).first()
    return 0 if found is None else found.balance_nanos


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


def test_numbers_have_no_gap_and_drafts_have_none(acme: Project, globex: Project) -> None:
    use(acme)
    use(globex)
    assert draft_invoices(OCTOBER) == 2
    first, second = Invoice.objects.order_by("id")
    assert (first.number, second.number) == (None, None)
    invoices.discard(first.id)
    now = datetime(2026, 12, 31, 23, tzinfo=UTC)
    assert invoices.issue(second.id, now=now).number == "INV-2026-000001"
    assert draft_invoices(OCTOBER) == 1
    with pytest.raises(RuntimeError, match="crash"), transaction.atomic():
        invoices.issue(Invoice.objects.get(state="draft").id, now=now)
        raise RuntimeError("crash")
    assert invoices.issue(Invoice.objects.get(state="draft").id, now=now).number == (
        "INV-2026-000002"
    )
    use(acme, datetime(2026, 11, 3, tzinfo=UTC))
    later = draft_invoice(acme.tenant, date(2026, 11, 1), now=now)
    assert later is not None
    assert invoices.issue(later.id, now=now + timedelta(days=1)).number == "INV-2027-000001"
    assert list(invoice_problems()) == []


def test_a_second_invoice_for_a_month_is_refused_with_the_reason(acme: Project) -> None:
    use(acme, prices=DEAR)
    drafted(acme)
    with pytest.raises(Conflict, match="Acme has a draft for 2026-10; discard it"):
        draft_invoice(acme.tenant, OCTOBER)
    invoice = invoices.issue(Invoice.objects.get().id)
    with pytest.raises(Conflict, match=f"invoiced for 2026-10 already: {invoice.number}, issued"):
        draft_invoice(acme.tenant, OCTOBER)
    with pytest.raises(Conflict, match="what is left of 2026-09 comes on its next invoice"):
        draft_invoice(acme.tenant, SEPTEMBER)
    with pytest.raises(DatabaseError, match="invoice_once_in_period"), transaction.atomic():
        Invoice.objects.create(
            tenant=acme.tenant,
            seller=invoice.seller,
            period=OCTOBER,
            usage_until=NOON,
            buyer_name="Acme",
        )


def test_a_month_that_is_not_over_cannot_be_invoiced(acme: Project) -> None:
    with pytest.raises(ValidationError, match="2026-10 is not over; the newest month"):
        draft_invoice(acme.tenant, OCTOBER, now=NOON)


def test_nobody_invoices_until_somebody_is_named(acme: Project) -> None:
    use(acme)
    Seller.objects.update(is_current=False)
    with pytest.raises(ValidationError, match="Nobody invoices yet"):
        draft_invoice(acme.tenant, OCTOBER)
    assert run_month_end(AFTER_OCTOBER).issued == 0


def test_who_used_nothing_gets_no_invoice(acme: Project) -> None:
    assert draft_invoice(acme.tenant, OCTOBER) is None
    assert draft_invoices(OCTOBER) == 0


@pytest.mark.parametrize(
    "edit",
    [
        {"due_nanos": 1, "charges_nanos": 1, "carried_nanos": 1},
        {"number": "INV-2026-000007"},
        {"period": SEPTEMBER},
        {"state": "draft"},
        {"buyer_name": "Globex"},
        {"usage_until": NOON},
        {"paid_at": NOON},
    ],
)
def test_an_issued_invoice_is_never_edited(acme: Project, edit: dict[str, object]) -> None:
    use(acme, prices=DEAR)
    invoice = issued(acme)
    with pytest.raises(DatabaseError), transaction.atomic():
        Invoice.objects.filter(id=invoice.id).update(**edit)
    with pytest.raises(DatabaseError, match="cannot be deleted"), transaction.atomic():
        Invoice.objects.filter(id=invoice.id)._raw_delete("default")
    with pytest.raises(DatabaseError, match="lines stay as they are"), transaction.atomic():
        InvoiceLine.objects.filter(invoice=invoice)._raw_delete("default")
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        InvoiceLine.objects.filter(invoice=invoice).update(amount_nanos=0)


def test_numbers_are_never_taken_back(acme: Project) -> None:
    use(acme)
    issued(acme)
    with pytest.raises(DatabaseError, match="only ascend by one"), transaction.atomic():
        InvoiceCounter.objects.update(last=0)
    with pytest.raises(DatabaseError, match="only ascend by one"), transaction.atomic():
        InvoiceCounter.objects.all().delete()


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


def test_late_usage_that_is_not_invoiced_yet_is_no_problem_and_other_differences_are(
    acme: Project,
) -> None:
    use(acme)
    issued(acme)
    use(acme, times=2)
    assert list(invoice_problems()) == []
    DailyUsage.objects.update(cost_nanos=1)
    problems = list(invoice_problems())
    assert any("until its newest invoice" in problem for problem in problems), problems
    assert any("of revenue" in problem for problem in problems)


def test_a_payment_settles_what_is_owed_once(acme: Project, globex: Project) -> None:
    use(acme, prices=DEAR)
    use(globex, prices=DEAR)
    invoice, other = issued(acme), issued(globex)
    owed = balance(acme, AccountName.RECEIVABLE)
    payment = invoices.pay(invoice.id, reference="BANK-1")
    assert invoices.pay(invoice.id, reference="BANK-1") == payment
    invoice.refresh_from_db()
    assert invoice.state == InvoiceState.PAID
    assert balance(acme, AccountName.RECEIVABLE) == owed - invoice.payable_nanos
    with pytest.raises(Conflict, match="is paid; only an issued invoice can be paid"):
        invoices.pay(invoice.id, reference="BANK-2")
    with pytest.raises(Conflict, match=f"has paid {invoice.number} already"):
        invoices.pay(other.id, reference="BANK-1")
    with pytest.raises(Conflict, match="is paid; only an issued invoice can be void"):
        invoices.void(invoice.id, reason="late")
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic():
        Payment.objects.update(amount_nanos=1)
    assert list(invoice_problems()) == []


def test_money_for_what_was_written_off_is_booked_and_recovers_it(acme: Project) -> None:
    use(acme, prices=DEAR)
    invoice = issued(acme)
    credit.write_off(acme.tenant.id, 10**9, reference="case-3", memo="insolvent")
    invoices.pay(invoice.id, reference="BANK-1")
    assert Payment.objects.get().amount_nanos == 13 * 10**9 == balance(acme, AccountName.CASH)
    assert balance(acme, AccountName.RECEIVABLE) == balance(acme, AccountName.BAD_DEBT) == 0
    assert list(invoice_problems()) == []


def test_a_void_invoice_keeps_its_number_and_its_month_is_invoiced_anew(acme: Project) -> None:
    cost = use(acme, prices=DEAR)
    first = issued(acme)
    with pytest.raises(ValidationError, match="Say why"):
        invoices.void(first.id, reason=" ")
    invoices.void(first.id, reason="wrong address")
    first.refresh_from_db()
    assert (first.state, first.sequence) == (InvoiceState.VOID, 1)
    second = issued(acme)
    assert (second.sequence, second.charges_nanos) == (2, cost)
    with pytest.raises(Conflict, match="is void"):
        invoices.pay(first.id, reference="BANK-1")
    assert list(invoice_problems()) == []


def test_only_the_newest_invoice_of_a_tenant_is_taken_back(acme: Project) -> None:
    use(acme, NOON - timedelta(days=30), prices=DEAR)
    use(acme, prices=DEAR)
    first = issued(acme, SEPTEMBER)
    second = drafted(acme)
    with pytest.raises(Conflict, match="was made on top of it"):
        invoices.void(first.id, reason="wrong")
    invoices.discard(second.id)
    invoices.void(first.id, reason="wrong")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("take_back", ["void", "discard"])
def test_nothing_is_taken_back_while_an_invoice_is_made_on_top_of_it(
    acme: Project, take_back: str
) -> None:
    use(acme, NOON - timedelta(days=30), prices=DEAR)
    use(acme, prices=DEAR)
    first = drafted(acme, SEPTEMBER)
    if take_back == "void":
        invoices.issue(first.id)
    is_made, may_commit = threading.Event(), threading.Event()

    def draft() -> None:
        try:
            with operator_scope("test"):
                draft_invoice(acme.tenant, OCTOBER)
                is_made.set()
                may_commit.wait(30)
        finally:
            connections.close_all()

    def taken_back() -> None:
        if take_back == "void":
            invoices.void(first.id, reason="wrong")
        else:
            invoices.discard(first.id)

    with ThreadPoolExecutor(1) as pool:
        drafting = pool.submit(draft)
        assert is_made.wait(30)
        with (
            pytest.raises(DatabaseError, match="lock timeout"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute("SET LOCAL lock_timeout = '200ms'")
            taken_back()
        may_commit.set()
        drafting.result(30)
    with pytest.raises(Conflict, match="was made on top of it"):
        taken_back()
    assert list(invoice_problems()) == []


def test_drafts_of_a_tenant_are_issued_in_the_order_of_their_months(acme: Project) -> None:
    use(acme, NOON - timedelta(days=30))
    use(acme)
    drafted(acme, SEPTEMBER)
    second = drafted(acme)
    with pytest.raises(Conflict, match="Issue the draft 2026-09 of Acme first"):
        invoices.issue(second.id)


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


def test_the_month_end_drafts_after_the_grace_and_issues_after_the_review(
    acme: Project, globex: Project, seller: Seller
) -> None:
    use(acme, prices=DEAR)
    use(globex)
    assert run_month_end(datetime(2026, 11, 1, 5, 59, tzinfo=UTC)).drafted == 0
    Seller.objects.update(review_days=None)
    assert run_month_end(AFTER_OCTOBER).drafted == 2
    assert run_month_end(AFTER_OCTOBER).drafted == 0
    Seller.objects.update(review_days=0)
    assert run_month_end(AFTER_OCTOBER).issued == 2
    again = run_month_end(AFTER_OCTOBER)
    assert (again.drafted, again.issued) == (0, 0)
    assert Invoice.objects.get(tenant=acme.tenant).state == InvoiceState.ISSUED
    # Less than a cent: there is nothing to pay.
    assert Invoice.objects.get(tenant=globex.tenant).state == InvoiceState.PAID
    assert list(invoice_problems()) == []


def test_fsck_finds_a_gap_and_a_posting_that_is_not_there(acme: Project, globex: Project) -> None:
    use(acme, prices=DEAR)
    invoice = issued(acme)
    InvoiceCounter.objects.get().take()
    Invoice.objects.filter(id=invoice.id).update(state="paid", paid_at=NOON)
    problems = list(invoice_problems())
    assert any("have the numbers 1 to 1; expected 1 to 2" in problem for problem in problems)
    assert f"Invoice {invoice.number} is paid and has no payment." in problems


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            ["UPDATE billing_invoiceline SET amount_nanos = amount_nanos"
             " + CASE model WHEN 'other' THEN 1 ELSE -1 END WHERE period = '2026-10-01'"],
            "used other in 2026-10",
        ),
        (
            ["UPDATE billing_invoiceline SET amount_nanos = amount_nanos"
             " + CASE adapter WHEN '' THEN 1 ELSE -1 END WHERE period = '2026-09-01'"],
            "adapter poems) for 18 nano-dollars until its newest invoice; its invoices charge 17",
        ),
        (
            ["DELETE FROM billing_invoiceline WHERE period = '2026-09-01'",
             "UPDATE billing_invoice SET charges_nanos = charges_nanos - 36,"
             " due_nanos = due_nanos - 36, carried_nanos = carried_nanos - 36"],
            "used penstock-demo in 2026-09",
        ),
        (
            ["UPDATE billing_ledgerentry SET model = 'third' WHERE model = 'other'"],
            "used other in 2026-10 for 36 nano-dollars; its ledger has 0 of revenue",
        ),
    ],
)  # fmt: skip
def test_fsck_finds_a_line_that_is_not_what_was_used(
    acme: Project, changes: list[str], sentence: str
) -> None:
    use(acme, NOON - timedelta(days=30))
    use(acme, NOON - timedelta(days=30), adapter="poems")
    use(acme)
    use(acme, model="other")
    issued(acme)
    use(acme, model="other")  # which is late, and no problem
    assert list(invoice_problems()) == []
    tables = ("billing_invoice", "billing_invoiceline", "billing_ledgerentry")
    with psycopg.connect(django_settings.ENV.owner_database_url, autocommit=True) as owner:
        for table in tables:
            owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for change in changes:
            # The owner sees the rows of the ledger's tables, but none of the invoices'.
            if "ledger" in change:
                owner.execute(change)
                continue
            with connection.cursor() as cursor:
                cursor.execute(change)
                assert cursor.rowcount > 0
        for table in tables:
            owner.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        owner.execute("ALTER TABLE billing_ledgerentry ENABLE ALWAYS TRIGGER append_only")
    found = list(invoice_problems())
    assert any(sentence in problem for problem in found), found
