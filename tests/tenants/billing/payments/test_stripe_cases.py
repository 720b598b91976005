"""What Stripe does, case by case: the table of docs/payments.md."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from gpu_workers.protocol.messages import Prices
from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.check import invoice_problems
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.ledger import credit
from tenants.billing.ledger.chain import ledger_problems
from tenants.billing.models import (
    AccountName,
    EventResolution,
    Invoice,
    InvoiceState,
    LineKind,
    Payment,
    ProviderEvent,
)
from tenants.billing.payments.check import event_problems, payment_problems, reversal_problems
from tenants.billing.payments.providers import request_payments
from tenants.billing.payments.resolving import resolve
from tenants.models import Project
from tests.support.billing.billed_usage import DEAR, NOON, OCTOBER, SEPTEMBER, use
from tests.support.billing.issued_invoices import balance
from tests.support.billing.stripe_api import StripeApi, event_of
from tests.support.billing.stripe_cases import CASES, StripeCase
from tests.support.billing.stripe_webhook import send
from tests.support.refusals import raises_conflict

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller", "policy")]
DOLLAR = 10**9
NAMED = "in_2"
IN_SEPTEMBER = NOON - timedelta(days=30)
# A cent a token.
CENTS = Prices(10**10, 10**10, 10**10, 1000)


@pytest.fixture
def invoice(api: StripeApi, acme: Project) -> Invoice:
    """Of September, 39 dollars, that Stripe was asked to collect."""
    use(acme, IN_SEPTEMBER, times=3, prices=DEAR)
    made = draft_invoice(acme.tenant, SEPTEMBER)
    assert made is not None
    invoices.issue(made.id)
    request_payments()
    return Invoice.objects.get()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_stripe_does_what_it_documents_and_the_books_follow(
    api: StripeApi, invoice: Invoice, acme: Project, case: StripeCase
) -> None:
    verdicts = [send(event).json()["verdict"] for event in case.happens(api, NAMED)]
    assert verdicts == case.verdicts
    invoice.refresh_from_db()
    assert (invoice.state == InvoiceState.PAID) == case.is_paid
    in_dollars = {
        account: balance(acme, account) / DOLLAR
        for account in (AccountName.CASH, AccountName.RECEIVABLE, AccountName.PREPAID_CREDIT)
    }
    assert list(in_dollars.values()) == [case.paid_in, case.owed, case.prepaid]
    assert list(ledger_problems()) == [] == list(invoice_problems())
    assert list(reversal_problems()) == []
    # What is owed then, and asked for by nobody, is on the next invoice.
    use(acme, prices=DEAR)
    second = draft_invoice(acme.tenant, OCTOBER)
    assert second is not None
    asked = invoice.unpaid_nanos + second.payable_nanos
    assert asked == balance(acme, AccountName.RECEIVABLE)
    assert list(invoice_problems()) == []


def test_the_table_in_the_documentation_has_the_same_cases() -> None:
    page = Path(__file__).parents[4] / "docs" / "payments.md"
    rows = re.findall(r"^\| ([^|]+?) \|", page.read_text(), re.MULTILINE)
    assert set(rows) >= {case.name for case in CASES}


def test_a_refund_takes_prepaid_credit_first(
    api: StripeApi, invoice: Invoice, acme: Project
) -> None:
    send(event_of("invoice.paid", api.pay(NAMED, 3900), "evt_paid"))
    credit.top_up(acme.tenant_id, 5 * DOLLAR, reference="wire")
    send(event_of("refund.created", api.refund(NAMED, 700)))
    assert balance(acme, AccountName.PREPAID_CREDIT) == 0
    assert balance(acme, AccountName.RECEIVABLE) == 2 * DOLLAR
    use(acme, prices=DEAR)
    second = draft_invoice(acme.tenant, OCTOBER)
    assert second is not None
    told = second.lines.exclude(kind=LineKind.USAGE).order_by("position")
    assert list(told.values_list("amount_nanos", flat=True)) == [7 * DOLLAR, -5 * DOLLAR]
    assert list(invoice_problems()) == []


def test_a_payment_that_an_older_version_booked_is_known_and_refunded(
    api: StripeApi, invoice: Invoice, acme: Project
) -> None:
    """It was booked under the name of the invoice, without its charge."""
    paid = event_of("invoice.paid", api.pay(NAMED, 3900))
    invoices.pay(invoice.id, reference=NAMED, provider="stripe")
    assert send(paid).json()["verdict"] == "applied"
    assert Payment.objects.count() == 1
    send(event_of("refund.created", api.refund(NAMED, 3900), "evt_2"))
    assert balance(acme, AccountName.RECEIVABLE) == 39 * DOLLAR


def test_more_is_not_taken_of_a_payment_than_it_was(
    api: StripeApi, invoice: Invoice, acme: Project
) -> None:
    send(event_of("invoice.paid", api.pay(NAMED, 3900), "evt_paid"))
    send(event_of("charge.dispute.created", api.dispute(NAMED, "lost", -3900), "evt_lost"))
    refund = event_of("refund.created", api.refund(NAMED, 700), "evt_refund")
    assert send(refund).json()["verdict"] == "puzzling"
    assert balance(acme, AccountName.CASH) == 0


def test_what_stripe_would_not_charge_is_carried_to_the_next_invoice(
    api: StripeApi, acme: Project
) -> None:
    use(acme, IN_SEPTEMBER, times=3, prices=CENTS)
    first = draft_invoice(acme.tenant, SEPTEMBER)
    assert first is not None
    first = invoices.issue(first.id)
    assert (first.state, first.payable_nanos) == (InvoiceState.PAID, 0)
    assert first.carried_nanos == 45 * 10**7
    assert request_payments() == 0
    use(acme, prices=CENTS)
    second = draft_invoice(acme.tenant, OCTOBER)
    assert second is not None
    assert second.payable_nanos == 60 * 10**7
    assert list(invoice_problems()) == []


def test_what_does_not_fit_is_said_once_until_an_operator_resolves_it(
    api: StripeApi, invoice: Invoice
) -> None:
    voided = api.change(NAMED, status="void")
    for number, verdict in enumerate(["puzzling", "ignored"]):
        event = event_of("invoice.voided", voided, f"evt_{number}")
        assert send(event).json()["verdict"] == verdict
    [problem] = event_problems()
    assert "evt_0" in problem and str(invoice) in problem
    puzzling = ProviderEvent.objects.unresolved().get()
    resolve(puzzling, note="asked again")
    assert list(payment_problems()) == []
    assert EventResolution.objects.get().event == puzzling
    with raises_conflict("nothing_to_resolve"):
        resolve(puzzling, note="twice")
    assert send(event_of("invoice.voided", voided, "evt_2")).json()["verdict"] == "puzzling"


def test_a_void_invoice_that_was_paid_there_meanwhile_is_asked_about_no_more(
    api: StripeApi, invoice: Invoice
) -> None:
    invoices.void(invoice.id, reason="wrong address")
    paid = event_of("invoice.paid", api.pay(NAMED, 3900))
    api.failing = {f"/v1/invoices/{NAMED}/void"}
    assert request_payments() == 1
    assert request_payments() == 0
    assert send(paid).json()["verdict"] == "puzzling"
