"""Invoices from draft to payment, over the ledger and PostgreSQL's own guards."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import connection, connections, transaction
from psycopg.errors import CheckViolation, LockNotAvailable, UniqueViolation

from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.drafts import draft_invoice, draft_invoices
from tenants.billing.invoicing.month_end import run_month_end
from tenants.billing.ledger import credit
from tenants.billing.models import (
    AccountName,
    Invoice,
    InvoiceCounter,
    InvoiceLine,
    InvoiceState,
    Payment,
    Seller,
)
from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tests.support.billing.billed_usage import (
    AFTER_OCTOBER,
    DEAR,
    NOON,
    OCTOBER,
    SEPTEMBER,
    use,
)
from tests.support.billing.issued_invoices import balance, drafted, issued
from tests.support.refusals import database_refuses, raises_conflict, raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]


class Crash(Exception):
    """Undoes a transaction."""


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
    with pytest.raises(Crash), transaction.atomic():
        invoices.issue(Invoice.objects.get(state="draft").id, now=now)
        raise Crash
    assert invoices.issue(Invoice.objects.get(state="draft").id, now=now).number == (
        "INV-2026-000002"
    )
    use(acme, datetime(2026, 11, 3, tzinfo=UTC))
    later = draft_invoice(acme.tenant, date(2026, 11, 1), now=now)
    assert later is not None
    assert invoices.issue(later.id, now=now + timedelta(days=1)).number == "INV-2027-000001"
    assert list(invoice_problems()) == []


def test_a_second_invoice_for_a_month_is_refused(acme: Project) -> None:
    use(acme, prices=DEAR)
    drafted(acme)
    with raises_conflict("draft_exists", month="2026-10", state="draft"):
        draft_invoice(acme.tenant, OCTOBER)
    invoice = invoices.issue(Invoice.objects.get().id)
    with raises_conflict("month_invoiced", invoice=invoice.number, month="2026-10", state="issued"):
        draft_invoice(acme.tenant, OCTOBER)
    with raises_conflict("later_month_invoiced", invoice=invoice.number, month="2026-10"):
        draft_invoice(acme.tenant, SEPTEMBER)
    refused = database_refuses(UniqueViolation, constraint="invoice_once_in_period")
    with refused, transaction.atomic():
        Invoice.objects.create(
            tenant=acme.tenant,
            seller=invoice.seller,
            period=OCTOBER,
            usage_until=NOON,
            buyer_name="Acme",
        )


def test_a_month_that_is_not_over_cannot_be_invoiced(acme: Project) -> None:
    with raises_invalid("month_not_over", newest=SEPTEMBER):
        draft_invoice(acme.tenant, OCTOBER, now=NOON)


def test_nobody_invoices_until_somebody_is_named(acme: Project) -> None:
    use(acme)
    Seller.objects.update(is_current=False)
    with raises_invalid("no_seller"):
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
    rule = "invoice_state_order" if "state" in edit else "invoice_fixed_once_issued"
    with database_refuses(CheckViolation, constraint=rule), transaction.atomic():
        Invoice.objects.filter(id=invoice.id).update(**edit)
    with database_refuses(constraint="invoice_kept_once_issued"), transaction.atomic():
        Invoice.objects.filter(id=invoice.id)._raw_delete("default")
    with database_refuses(constraint="invoice_lines_fixed_once_issued"), transaction.atomic():
        InvoiceLine.objects.filter(invoice=invoice)._raw_delete("default")
    with database_refuses(constraint="invoice_line_never_changed"), transaction.atomic():
        InvoiceLine.objects.filter(invoice=invoice).update(amount_nanos=0)


def test_numbers_are_never_taken_back(acme: Project) -> None:
    use(acme)
    issued(acme)
    with database_refuses(constraint="invoice_numbers_ascend"), transaction.atomic():
        InvoiceCounter.objects.update(last=0)
    with database_refuses(constraint="invoice_numbers_ascend"), transaction.atomic():
        InvoiceCounter.objects.all().delete()


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
    with raises_conflict("invoice_state", state="paid"):
        invoices.pay(invoice.id, reference="BANK-2")
    with raises_conflict("payment_used", invoice=invoice.number):
        invoices.pay(other.id, reference="BANK-1")
    with raises_conflict("invoice_state", state="paid"):
        invoices.void(invoice.id, reason="late")
    with database_refuses(constraint="payment_guard"), transaction.atomic():
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
    with raises_invalid("required", "void_reason"):
        invoices.void(first.id, reason=" ")
    invoices.void(first.id, reason="wrong address")
    first.refresh_from_db()
    assert (first.state, first.sequence) == (InvoiceState.VOID, 1)
    second = issued(acme)
    assert (second.sequence, second.charges_nanos) == (2, cost)
    with raises_conflict("invoice_state", state="void"):
        invoices.pay(first.id, reference="BANK-1")
    assert list(invoice_problems()) == []


def test_only_the_newest_invoice_of_a_tenant_is_taken_back(acme: Project) -> None:
    use(acme, NOON - timedelta(days=30), prices=DEAR)
    use(acme, prices=DEAR)
    first = issued(acme, SEPTEMBER)
    second = drafted(acme)
    with raises_conflict("invoice_not_newest", newest=str(second)):
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
            database_refuses(LockNotAvailable),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute("SET LOCAL lock_timeout = '200ms'")
            taken_back()
        may_commit.set()
        drafting.result(30)
    with raises_conflict("invoice_not_newest"):
        taken_back()
    assert list(invoice_problems()) == []


def test_drafts_of_a_tenant_are_issued_in_the_order_of_their_months(acme: Project) -> None:
    use(acme, NOON - timedelta(days=30))
    use(acme)
    drafted(acme, SEPTEMBER)
    second = drafted(acme)
    with raises_conflict("earlier_draft", month="2026-09"):
        invoices.issue(second.id)


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
