"""A tenant that is closed: its running month is invoiced, its credit pays, and somebody gets the
invoice."""

import smtplib
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone
from pytest_django import Settings
from redis import Redis

from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.invoicing.last_mails import send_last_invoices
from tenants.billing.invoicing.month_end import run_month_end
from tenants.billing.ledger import credit
from tenants.billing.ledger.chain import ledger_problems
from tenants.billing.models import (
    AccountName,
    ClosingAddress,
    Invoice,
    InvoiceState,
    LineKind,
    Payment,
    Seller,
)
from tenants.billing.periods import month_before, month_of, start_of
from tenants.models import Membership, Project, User
from tenants.offboarding.closing import close_tenant
from tenants.permissions import Role
from tests.support.billing.billed_usage import DEAR, use
from tests.support.billing.issued_invoices import balance
from tests.support.billing.prepaid import reserve

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller", "policy")]
DOLLAR = 10**9
NOW: datetime
THIS_MONTH: date
LAST_MONTH: date


@pytest.fixture(autouse=True)
def _read_the_clock() -> None:
    """For each test, as months end while tests run."""
    global NOW, THIS_MONTH, LAST_MONTH
    NOW = datetime.now(UTC)
    THIS_MONTH = month_of(NOW.date())
    LAST_MONTH = month_before(THIS_MONTH)


@pytest.fixture
def alice(acme: Project) -> User:
    user = User.objects.create_user("alice@acme.example", "correct horse battery")
    Membership.objects.create(tenant=acme.tenant, user=user, role=Role.OWNER)
    viewer = User.objects.create_user("ada@acme.example", "correct horse battery")
    Membership.objects.create(tenant=acme.tenant, user=viewer, role=Role.VIEWER)
    return user


def use_last_month(customer: Project) -> Invoice:
    """And the invoice of it, which nobody has paid."""
    use(customer, start_of(LAST_MONTH) + timedelta(days=3), prices=DEAR)
    draft = draft_invoice(customer.tenant, LAST_MONTH, now=NOW)
    assert draft is not None
    return invoices.issue(draft.id)


def books_agree() -> None:
    assert list(invoice_problems()) == []
    assert list(ledger_problems()) == []


def test_the_running_month_is_invoiced_and_sent_to_who_ran_the_money(
    acme: Project, alice: User
) -> None:
    use(acme, NOW, prices=DEAR)
    close_tenant(acme.tenant)
    invoice = Invoice.objects.get()
    assert (invoice.period, invoice.state) == (THIS_MONTH, InvoiceState.ISSUED)
    assert (invoice.payable_nanos, invoice.buyer_name) == (13 * DOLLAR, "Acme")
    assert send_last_invoices() == 1
    [sent] = mail.outbox
    assert sent.to == ["alice@acme.example"]
    assert str(invoice.number) in sent.subject and "$13.00" in sent.body
    [(name, content, kind)] = sent.attachments
    assert (name, kind) == (f"{invoice.number}.pdf", "application/pdf")
    assert bytes(content).startswith(b"%PDF")
    assert send_last_invoices() == 0
    books_agree()


def test_unpaid_invoices_are_sent_again_and_addresses_go_once_nothing_is_left_to_pay(
    acme: Project, alice: User
) -> None:
    first = use_last_month(acme)
    close_tenant(acme.tenant)
    assert send_last_invoices() == 1 == len(mail.outbox)
    later = timezone.now() + timedelta(days=60)
    send_last_invoices(later)
    assert ClosingAddress.objects.count() == 1
    invoices.pay(first.id, reference="BANK-1")
    send_last_invoices(later)
    assert not ClosingAddress.objects.exists()


def test_credit_that_is_left_pays_what_is_owed_given_credit_first(acme: Project) -> None:
    """26 dollars are owed, 13 of them on an unpaid invoice; 30 are there, 10 of them a gift."""
    first = use_last_month(acme)
    use(acme, NOW, prices=DEAR)
    credit.grant_promotion(acme.tenant_id, 10 * DOLLAR, reference="welcome")
    credit.top_up(acme.tenant_id, 20 * DOLLAR, reference="wire")
    close_tenant(acme.tenant)
    first.refresh_from_db()
    assert first.state == InvoiceState.PAID
    assert Payment.objects.get().provider == invoices.CREDIT
    last = Invoice.objects.get(period=THIS_MONTH)
    assert (last.state, last.payable_nanos) == (InvoiceState.PAID, 0)
    paid = last.lines.filter(kind=LineKind.PAID_BY_CREDIT).values_list("account", "amount_nanos")
    assert list(paid) == [("promotional_credit", -10 * DOLLAR), ("prepaid_credit", -3 * DOLLAR)]
    assert balance(acme, AccountName.RECEIVABLE) == 0
    assert balance(acme, AccountName.PREPAID_CREDIT) == 4 * DOLLAR
    books_agree()


def test_credit_that_is_not_enough_pays_a_part(acme: Project) -> None:
    first = use_last_month(acme)
    credit.top_up(acme.tenant_id, 5 * DOLLAR, reference="wire")
    close_tenant(acme.tenant)
    first.refresh_from_db()
    assert (first.state, first.unpaid_nanos) == (InvoiceState.ISSUED, 8 * DOLLAR)
    invoices.pay(first.id, reference="BANK-1")
    first.refresh_from_db()
    assert first.state == InvoiceState.PAID
    assert balance(acme, AccountName.CASH) == 13 * DOLLAR
    assert balance(acme, AccountName.RECEIVABLE) == 0
    books_agree()


def test_what_open_requests_have_reserved_is_not_spent_on_invoices(
    acme: Project, policy: Redis
) -> None:
    first = use_last_month(acme)
    credit.top_up(acme.tenant_id, 20 * DOLLAR, reference="wire")
    # Of all that may ever be spent, 13 by the ledger, so much is free.
    reserve(policy, acme.tenant_id, 31 * DOLLAR)
    close_tenant(acme.tenant)
    assert Invoice.objects.get(id=first.id).unpaid_nanos == 11 * DOLLAR
    books_agree()


def test_a_seller_who_reviews_drafts_reviews_the_last_one_too(acme: Project, alice: User) -> None:
    Seller.objects.update(review_days=3)
    use(acme, NOW, prices=DEAR)
    close_tenant(acme.tenant)
    assert Invoice.objects.get().state == InvoiceState.DRAFT
    assert send_last_invoices() == 0
    later = timezone.now() + timedelta(days=4)
    run_month_end(later)
    assert Invoice.objects.get(period=THIS_MONTH).state == InvoiceState.ISSUED
    assert send_last_invoices(later) == 1
    assert mail.outbox[0].to == ["alice@acme.example"]


def test_usage_that_comes_after_the_closing_is_invoiced_and_sent_as_well(
    acme: Project, alice: User
) -> None:
    use(acme, NOW, prices=DEAR)
    close_tenant(acme.tenant)
    use(acme, NOW, prices=DEAR)
    send_last_invoices()
    # Not in a month's first hours, when the one before is not invoiced yet.
    later = start_of(month_of(THIS_MONTH + timedelta(days=63))) + timedelta(days=9)
    run_month_end(later)
    second = Invoice.objects.exclude(period=THIS_MONTH).get()
    assert (second.payable_nanos, second.buyer_name) == (13 * DOLLAR, "Acme")
    assert send_last_invoices(later) == 1
    assert str(second.number) in mail.outbox[-1].subject
    books_agree()


def test_where_nobody_ran_the_money_the_seller_hands_the_invoice_on(acme: Project) -> None:
    use(acme, NOW, prices=DEAR)
    close_tenant(acme.tenant)
    send_last_invoices()
    assert mail.outbox[0].to == ["billing@penstock.example"]


def test_an_invoice_that_could_not_be_sent_is_tried_again(
    acme: Project, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(acme, NOW, prices=DEAR)
    close_tenant(acme.tenant)

    def refuse(*_: Any, **__: Any) -> None:
        raise smtplib.SMTPServerDisconnected("alice@acme.example")

    with monkeypatch.context() as patch:
        patch.setattr("django.core.mail.EmailMessage.send", refuse)
        assert send_last_invoices() == 0
    assert send_last_invoices() == 0, "not at once"
    assert send_last_invoices(timezone.now() + timedelta(minutes=10)) == 1


def test_where_a_provider_collects_the_invoice_is_sent_with_the_page_for_payment(
    acme: Project, alice: User, settings: Settings
) -> None:
    settings.PENSTOCK_PAYMENT_PROVIDER = "stripe"
    use(acme, NOW, prices=DEAR)
    close_tenant(acme.tenant)
    assert send_last_invoices() == 0
    Invoice.objects.update(payment_url="https://invoice.stripe.com/i/in_2")
    assert send_last_invoices() == 1
    assert "https://invoice.stripe.com/i/in_2" in mail.outbox[0].body


def test_where_nobody_invoices_a_tenant_is_closed_all_the_same(acme: Project, alice: User) -> None:
    Seller.objects.update(is_current=False)
    use(acme, NOW, prices=DEAR)
    close_tenant(acme.tenant)
    assert not Invoice.objects.exists()
    assert not ClosingAddress.objects.exists()
