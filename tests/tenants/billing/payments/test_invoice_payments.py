"""Invoices, payments and the ledger agree, whatever was adjusted, given up or paid early."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from psycopg.errors import LockNotAvailable

from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.check import booked_problems, invoice_problems
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.invoicing.month_end import issue_drafts
from tenants.billing.ledger import credit
from tenants.billing.models import (
    AccountName,
    Invoice,
    InvoiceLine,
    InvoiceState,
    LedgerAccount,
    LedgerTransaction,
    LineKind,
    Payment,
    TransactionKind,
)
from tenants.isolation.scoping import operator_scope
from tenants.models import PolicyChange, Project, Tier
from tenants.offboarding.closing import close_tenant
from tests.support.billing.billed_usage import DEAR, NOON, OCTOBER, SEPTEMBER, use, use_slowly
from tests.support.commands import attempt, refused, run
from tests.support.refusals import database_refuses, raises_conflict

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]

DOLLAR = 10**9
NOVEMBER = date(2026, 11, 1)
DECEMBER = datetime(2026, 12, 1, 7, tzinfo=UTC)
IN_SEPTEMBER = NOON - timedelta(days=30)
IN_NOVEMBER = datetime(2026, 11, 9, tzinfo=UTC)


def issued(customer: Project, month: date = OCTOBER) -> Invoice:
    made = draft_invoice(customer.tenant, month, now=DECEMBER)
    assert made is not None
    return invoices.issue(made.id)


def balance(customer: Project, account: AccountName) -> int:
    found = LedgerAccount.objects.filter(tenant=customer.tenant, name=account).first()
    return 0 if found is None else found.balance_nanos


def lines(invoice: Invoice, *kinds: LineKind) -> list[tuple[str, int]]:
    found = invoice.lines.filter(kind__in=kinds).order_by("position")
    return list(found.values_list("description", "amount_nanos"))


def check_books(customer: Project) -> None:
    """Once all is on invoices: what they ask for and carry is what the ledger says is owed or was
    given up; and cash is what was paid."""
    chain = Invoice.objects.not_void().filter(tenant=customer.tenant).order_by("period")
    newest = chain.last()
    assert newest is not None
    asked = sum(each.unpaid_nanos for each in chain)
    given_up = balance(customer, AccountName.BAD_DEBT)
    assert asked + newest.carried_nanos == given_up + balance(customer, AccountName.RECEIVABLE)
    assert list(invoice_problems()) == []


def adjust(customer: Project, dollars: int, reference: str = "ticket-9") -> None:
    credit.adjust(customer.tenant.id, dollars * DOLLAR, reference=reference, memo="Goodwill")


# What is paid for more than is owed --------------------------------------------------------------


def test_an_invoice_is_paid_in_full_after_goodwill_and_the_rest_is_credit(acme: Project) -> None:
    use(acme, IN_SEPTEMBER, prices=DEAR)
    first = issued(acme, SEPTEMBER)
    adjust(acme, -5)
    told = PolicyChange.objects.count()
    invoices.pay(first.id, reference="BANK-1")
    assert PolicyChange.objects.count() == told + 1
    assert balance(acme, AccountName.CASH) == 13 * DOLLAR
    assert balance(acme, AccountName.RECEIVABLE) == 0
    assert balance(acme, AccountName.PREPAID_CREDIT) == 5 * DOLLAR
    use(acme, prices=DEAR)
    second = issued(acme)
    assert lines(second, LineKind.ADJUSTMENT) == [("Goodwill", -5 * DOLLAR)]
    assert lines(second, LineKind.PAID_BY_CREDIT) == [
        (f"Kept as prepaid credit: Payment of {first}", 5 * DOLLAR),
        ("Paid by prepaid credit", -5 * DOLLAR),
    ]
    assert second.payable_nanos == 8 * DOLLAR
    check_books(acme)
    invoices.pay(second.id, reference="BANK-2")
    assert balance(acme, AccountName.RECEIVABLE) == 0
    # Three weeks of thirteen dollars, less five, is what came.
    assert balance(acme, AccountName.CASH) == (13 + 8) * DOLLAR
    use(acme, IN_NOVEMBER, prices=DEAR)
    third = issued(acme, NOVEMBER)
    assert [line.kind for line in third.lines.all()] == [LineKind.USAGE]
    check_books(acme)


def test_goodwill_that_the_next_invoice_has_told_already_is_not_told_again(acme: Project) -> None:
    """The next invoice is made before the one before it is paid."""
    use(acme, IN_SEPTEMBER, prices=DEAR)
    first = issued(acme, SEPTEMBER)
    adjust(acme, -5)
    second = issued(acme)
    assert (second.payable_nanos, second.carried_nanos) == (0, -5 * DOLLAR)
    invoices.pay(first.id, reference="BANK-1")
    assert balance(acme, AccountName.PREPAID_CREDIT) == 5 * DOLLAR
    use(acme, IN_NOVEMBER, prices=DEAR)
    third = issued(acme, NOVEMBER)
    assert third.payable_nanos == 8 * DOLLAR == balance(acme, AccountName.RECEIVABLE)
    check_books(acme)


def test_a_void_invoice_told_nothing_for_good(acme: Project) -> None:
    use(acme, IN_SEPTEMBER, prices=DEAR)
    first = issued(acme, SEPTEMBER)
    adjust(acme, -5)
    invoices.pay(first.id, reference="BANK-1")
    use(acme, prices=DEAR)
    before = issued(acme)
    invoices.void(before.id, reason="wrong address")
    again = issued(acme)
    assert again.payable_nanos == before.payable_nanos == 8 * DOLLAR
    check_books(acme)


def test_money_that_comes_after_a_write_off_recovers_it(acme: Project) -> None:
    use(acme, IN_SEPTEMBER, prices=DEAR)
    first = issued(acme, SEPTEMBER)
    adjust(acme, -5)
    credit.write_off(acme.tenant.id, 7 * DOLLAR, reference="case-3", memo="insolvent")
    invoices.pay(first.id, reference="BANK-1")
    assert {name: balance(acme, name) // DOLLAR for name in AccountName if balance(acme, name)} == {
        AccountName.CASH: 13,
        AccountName.REVENUE: 13,
        AccountName.ADJUSTMENTS: 5,
        AccountName.PREPAID_CREDIT: 5,
    }
    use(acme, prices=DEAR)
    assert issued(acme).payable_nanos == 8 * DOLLAR
    check_books(acme)


# Money that came without an invoice --------------------------------------------------------------


def test_a_payment_without_an_invoice_is_refused_while_one_waits_for_it(acme: Project) -> None:
    use(acme, IN_SEPTEMBER, prices=DEAR)
    first = issued(acme, SEPTEMBER)
    payment = ("record_payment", "Acme", "13", "--reference", "BANK-1")
    with raises_conflict("invoice_unpaid", unpaid={str(first): 13 * DOLLAR}):
        attempt(*payment)
    ways_out = refused(*payment)
    assert "invoices pay" in ways_out and "--on-account" in ways_out
    run("invoices", "pay", str(first), "--reference", "BANK-1")
    for command in ("record_payment", "top_up"):
        with raises_conflict("payment_used", "reference", invoice=str(first)):
            attempt(command, *payment[1:])
    assert balance(acme, AccountName.CASH) == 13 * DOLLAR


def test_a_payment_on_account_pays_the_invoice_that_is_named_later(acme: Project) -> None:
    """Noted before its invoice was made, or by the wrong command: the money is booked once."""
    use(acme, IN_SEPTEMBER, prices=DEAR)
    draft = draft_invoice(acme.tenant, SEPTEMBER)
    assert draft is not None
    payment = ("record_payment", "Acme", "20", "--reference", "BANK-1")
    assert run(*payment)["credit"] == "$7.00"
    first = invoices.issue(draft.id)
    assert run(*payment)["credit"] == "$7.00"
    assert run("invoices", "pay", str(first), "--reference", "BANK-1")["state"] == "paid"
    assert run("invoices", "pay", str(first), "--reference", "BANK-1")["state"] == "paid"
    assert balance(acme, AccountName.CASH) == 20 * DOLLAR
    assert run(*payment)["credit"] == "$7.00"
    use(acme, prices=DEAR)
    second = issued(acme)
    assert lines(second, LineKind.PAYMENT, LineKind.PAID_BY_CREDIT) == [
        (f"Payment BANK-1, what {first} has left of it", -7 * DOLLAR),
        ("Kept as prepaid credit: Payment BANK-1", 7 * DOLLAR),
        ("Paid by prepaid credit", -7 * DOLLAR),
    ]
    assert second.payable_nanos == 6 * DOLLAR
    check_books(acme)


@pytest.mark.django_db(transaction=True)
def test_the_same_money_noted_by_two_at_once_is_booked_once(acme: Project) -> None:
    use(acme, prices=DEAR)
    invoice = issued(acme)
    is_booked, may_commit = threading.Event(), threading.Event()

    def book() -> None:
        try:
            with operator_scope("test"):
                credit.pay(acme.tenant.id, 13 * DOLLAR, reference="BANK-1", is_on_account=True)
                is_booked.set()
                may_commit.wait(30)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        booking = pool.submit(book)
        assert is_booked.wait(30)
        with (
            database_refuses(LockNotAvailable),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute("SET LOCAL lock_timeout = '200ms'")
            invoices.pay(invoice.id, reference="BANK-1")
        may_commit.set()
        booking.result(30)
    assert invoices.pay(invoice.id, reference="BANK-1").ledger_transaction_id is not None
    assert balance(acme, AccountName.CASH) == 13 * DOLLAR
    check_books(acme)


def test_a_payment_on_account_lessens_the_next_invoice_once(acme: Project) -> None:
    use(acme, IN_SEPTEMBER, prices=DEAR)
    run("record_payment", "Acme", "6", "--reference", "BANK-1")
    first = issued(acme, SEPTEMBER)
    assert lines(first, LineKind.PAYMENT) == [("Payment BANK-1", -6 * DOLLAR)]
    assert first.payable_nanos == 7 * DOLLAR
    run("record_payment", "Acme", "2", "--reference", "BANK-2", "--on-account")
    with raises_conflict("payment_on_invoice", invoice=str(first)):
        invoices.pay(first.id, reference="BANK-1")
    with raises_conflict("payment_too_small", paid_nanos=2 * DOLLAR, payable_nanos=7 * DOLLAR):
        invoices.pay(first.id, reference="BANK-2")
    invoices.pay(first.id, reference="BANK-3")
    second = issued(acme)
    assert (second.payable_nanos, second.carried_nanos) == (0, 0)
    assert balance(acme, AccountName.PREPAID_CREDIT) == 2 * DOLLAR
    check_books(acme)


def test_a_reference_of_other_money_pays_no_invoice(acme: Project) -> None:
    use(acme, prices=DEAR)
    credit.top_up(acme.tenant.id, 13 * DOLLAR, reference="BANK-1")
    invoice = issued(acme)
    with raises_conflict("reference_taken", "reference", kind="top_up", nanos=13 * DOLLAR):
        invoices.pay(invoice.id, reference="BANK-1")
    assert not Payment.objects.exists()


def test_a_payment_on_account_recovers_what_was_given_up(acme: Project) -> None:
    use(acme, IN_SEPTEMBER, prices=DEAR)
    first = issued(acme, SEPTEMBER)
    credit.write_off(acme.tenant.id, 13 * DOLLAR, reference="case-3", memo="insolvent")
    credit.pay(acme.tenant.id, 4 * DOLLAR, reference="BANK-1", is_on_account=True)
    assert balance(acme, AccountName.BAD_DEBT) == 9 * DOLLAR
    second = issued(acme)
    assert (first.payable_nanos, second.carried_nanos) == (13 * DOLLAR, -4 * DOLLAR)
    check_books(acme)


# Credits for promises ----------------------------------------------------------------------------


@pytest.fixture
def slow(acme: Project) -> Project:
    """A quarter of what it costs is credited: the first token came late."""
    Tier.objects.filter(name="premium").update(ttft_target_ms=500)
    for month in (SEPTEMBER, OCTOBER):
        use_slowly(acme, month)
    return acme


@pytest.mark.parametrize("why", ["paid early", "goodwill", "written off", "half of it paid"])
def test_a_credit_above_what_is_owed_is_issued_and_stays_as_credit(slow: Project, why: str) -> None:
    tenant_id, quarter = slow.tenant.id, 13 * DOLLAR // 4
    use(slow, IN_SEPTEMBER, prices=DEAR)
    draft = draft_invoice(slow.tenant, SEPTEMBER)
    assert draft is not None and draft.payable_nanos == 9_750_000_000
    if why == "paid early":
        credit.pay(tenant_id, 13 * DOLLAR, reference="BANK-1")
    elif why == "goodwill":
        adjust(slow, -13)
    elif why == "written off":
        credit.write_off(tenant_id, 13 * DOLLAR, reference="case-3", memo="insolvent")
    else:
        credit.pay(tenant_id, 11 * DOLLAR, reference="BANK-1")
    owed = balance(slow, AccountName.RECEIVABLE)
    assert issue_drafts([draft.id]) == 1
    invoice = Invoice.objects.get()
    line = invoice.lines.get(kind=LineKind.SLA_CREDIT)
    lessened = min(owed, quarter)
    assert (line.granted_nanos, line.amount_nanos) == (quarter, -lessened)
    assert invoice.due_nanos == 13 * DOLLAR - lessened
    assert balance(slow, AccountName.SLA_CREDIT) == quarter - lessened
    assert balance(slow, AccountName.SLA_EXPENSE) == quarter
    assert list(invoice_problems()) == []
    use(slow, prices=DEAR)
    issued(slow)
    check_books(slow)


@pytest.mark.usefixtures("policy")
def test_such_a_credit_goes_the_other_way_round_when_its_invoice_is_void(slow: Project) -> None:
    use(slow, prices=DEAR)
    draft = draft_invoice(slow.tenant, OCTOBER)
    assert draft is not None
    credit.pay(slow.tenant.id, 13 * DOLLAR, reference="BANK-1")
    invoices.issue(draft.id)
    invoices.void(draft.id, reason="paid before")
    assert balance(slow, AccountName.SLA_CREDIT) == 0
    again = issued(slow)
    assert (again.payable_nanos, again.state) == (0, InvoiceState.PAID)
    assert balance(slow, AccountName.SLA_CREDIT) == 13 * DOLLAR // 4
    check_books(slow)


# Drafts that wait --------------------------------------------------------------------------------


def test_why_a_draft_could_not_be_issued_stands_on_it(
    acme: Project, globex: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(acme, prices=DEAR)
    use(globex, prices=DEAR)
    ours = [draft_invoice(each.tenant, OCTOBER) for each in (acme, globex)]
    broken, other = (each.id for each in ours if each is not None)
    issue = invoices.issue

    def fail(invoice_id: Any, *, now: datetime | None = None) -> Invoice:
        if invoice_id == broken:
            raise RuntimeError("on purpose")
        return issue(invoice_id, now=now)

    with monkeypatch.context() as patch:
        patch.setattr("tenants.billing.invoicing.month_end.issue", fail)
        assert issue_drafts([broken, other]) == 1
    draft = Invoice.objects.get(id=broken)
    assert draft.blocked_reason == "RuntimeError: on purpose"
    [problem] = invoice_problems()
    assert str(draft.id) in problem and str(acme.tenant.id) in problem
    assert problem.endswith(draft.blocked_reason)
    assert issue_drafts([broken]) == 1
    draft.refresh_from_db()
    assert draft.blocked_reason == ""
    assert list(invoice_problems()) == []


# A tenant that has left ---------------------------------------------------------------------------


def test_a_closed_tenant_is_invoiced_under_the_name_it_had(acme: Project) -> None:
    use(acme, IN_SEPTEMBER, prices=DEAR)
    issued(acme, SEPTEMBER)
    use(acme, prices=DEAR)
    waiting = draft_invoice(acme.tenant, OCTOBER)
    use(acme, datetime.now(UTC) - timedelta(hours=1), prices=DEAR)
    close_tenant(acme.tenant)
    assert waiting is not None
    assert set(Invoice.objects.values_list("buyer_name", "state")) == {("Acme", "issued")}
    assert Invoice.objects.count() == 3


# fsck --------------------------------------------------------------------------------------------


def test_fsck_finds_a_line_that_is_not_what_the_ledger_moved(acme: Project) -> None:
    use(acme, IN_SEPTEMBER, prices=DEAR)
    issued(acme, SEPTEMBER)
    adjust(acme, -5)
    draft = draft_invoice(acme.tenant, OCTOBER)
    assert draft is not None and list(invoice_problems()) == []
    line = draft.lines.get()
    InvoiceLine.objects.create(
        tenant=acme.tenant,
        invoice=draft,
        position=2,
        kind=LineKind.ADJUSTMENT,
        period=OCTOBER,
        ledger_transaction_id=line.ledger_transaction_id,
        amount_nanos=-5 * DOLLAR,
    )
    Invoice.objects.update()
    posted = LedgerTransaction.objects.get(kind=TransactionKind.ADJUSTMENT)
    [problem] = booked_problems()
    for fact in (acme.tenant.id, posted.id, -10 * DOLLAR, -5 * DOLLAR):
        assert str(fact) in problem
    assert problem in invoice_problems()
