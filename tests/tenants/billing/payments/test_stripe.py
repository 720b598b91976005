"""Stripe: what we ask of its API, and what its webhooks may do. The API is on loopback."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections, transaction

from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.ledger import credit
from tenants.billing.ledger.balances import balance_of
from tenants.billing.models import Invoice, InvoiceState, Payment, ProviderEvent
from tenants.billing.payments.providers import request_payments
from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tests.support.billing.billed_usage import DEAR, OCTOBER, use
from tests.support.billing.stripe_api import API_KEY, StripeApi, event_of
from tests.support.billing.stripe_webhook import send, signed
from tests.support.refusals import database_refuses

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]


@pytest.fixture
def invoice(acme: Project) -> Invoice:
    use(acme, times=3, prices=DEAR)
    made = draft_invoice(acme.tenant, OCTOBER)
    assert made is not None
    return invoices.issue(made.id)


def collected(api: StripeApi, invoice: Invoice) -> dict[str, Any]:
    """Asked for at Stripe, and paid there; the event that tells."""
    request_payments()
    invoice.refresh_from_db()
    return event_of("invoice.paid", api.pay(invoice.provider_reference, 3900))


def kept() -> list[tuple[str, str]]:
    return list(ProviderEvent.objects.order_by("id").values_list("event_id", "verdict"))


def test_an_issued_invoice_is_asked_for_at_stripe_once(api: StripeApi, invoice: Invoice) -> None:
    assert request_payments() == 1
    invoice.refresh_from_db()
    assert (invoice.provider, invoice.provider_reference) == ("stripe", "in_2")
    assert invoice.payment_url == "https://invoice.stripe.com/i/in_2"
    assert [call.path for call in api.calls] == [
        "/v1/customers",
        "/v1/invoices",
        "/v1/invoiceitems",
        "/v1/invoices/in_2/finalize",
    ]
    made, item = api.calls[1].fields, api.calls[2].fields
    assert (item["amount"], item["currency"], item["invoice"]) == ("3900", "usd", "in_2")
    assert made["metadata[penstock_invoice]"] == str(invoice.id)
    assert made["auto_advance"] == "false"
    assert {call.authorization for call in api.calls} == {f"Bearer {API_KEY}"}
    assert (made["customer"], api.calls[0].fields["email"]) == ("cus_1", "billing@penstock.example")
    assert request_payments() == 0
    assert len(api.calls) == 4


def test_what_a_crash_left_half_done_is_done_once(api: StripeApi, invoice: Invoice) -> None:
    api.failing = {"/v1/invoices/in_2/finalize"}
    assert request_payments() == 0
    api.failing = set()
    assert request_payments() == 1
    made = [each["id"] for each in api.made]
    # The customer is told its address again.
    assert made == ["cus_1", "in_2", "ii_3", "cus_4", "in_2"]


def test_a_void_invoice_is_withdrawn(api: StripeApi, invoice: Invoice) -> None:
    request_payments()
    invoices.void(invoice.id, reason="wrong address")
    assert request_payments() == 1
    assert api.calls[-1].path == "/v1/invoices/in_2/void"
    assert request_payments() == 0


def test_what_the_bank_has_paid_is_no_longer_asked_for(api: StripeApi, invoice: Invoice) -> None:
    request_payments()
    invoices.pay(invoice.id, reference="BANK-1")
    assert request_payments() == 1
    assert api.calls[-1].path == "/v1/invoices/in_2/void"
    assert request_payments() == 0


def test_what_was_paid_at_stripe_is_left_as_it_is(api: StripeApi, invoice: Invoice) -> None:
    send(collected(api, invoice))
    calls = len(api.calls)
    assert request_payments() == 0
    assert len(api.calls) == calls


def test_by_default_nobody_is_asked(invoice: Invoice) -> None:
    assert request_payments() == 0


def test_a_signed_event_pays_the_invoice_and_comes_again_in_vain(
    api: StripeApi, invoice: Invoice
) -> None:
    event = collected(api, invoice)
    first, second = send(event), send(event)
    assert (first.status_code, first.json()["verdict"]) == (200, "applied")
    assert (second.status_code, second.json()["verdict"]) == (200, "replayed")
    invoice.refresh_from_db()
    assert invoice.state == InvoiceState.PAID
    payment = Payment.objects.get()
    assert (payment.provider, payment.reference) == ("stripe", "inpay_in_2_1")
    assert payment.charge == "pi_in_2_1"
    assert (payment.amount_nanos, int(payment.received_at.timestamp())) == (
        39 * 10**9,
        1_793_520_000,
    )
    assert kept() == [(event["id"], "applied"), (event["id"], "replayed")]
    # The same payment, told by another event.
    other = event | {"id": "evt_2"}
    assert send(other).json()["verdict"] == "applied"
    assert Payment.objects.count() == 1


@pytest.mark.parametrize("kind", ["another secret", "changed", "unsigned", "garbage"])
def test_a_forged_event_is_refused_and_kept(api: StripeApi, invoice: Invoice, kind: str) -> None:
    event = collected(api, invoice)
    body = json.dumps(event)
    signature = {
        "another secret": signed(body, secret="whsec_another"),
        "changed": signed(body.replace("evt_1", "evt_2")),
        "unsigned": "",
        "garbage": "t=now,v1=\x7f",
    }[kind]
    answer = send(body, signature)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_signature")
    invoice.refresh_from_db()
    assert invoice.state == InvoiceState.ISSUED
    row = ProviderEvent.objects.get()
    assert (row.verdict, row.event_id) == ("forged", event["id"])
    assert row.reason and row.address == "127.0.0.1"
    # And it takes nothing from the genuine one.
    assert send(event).json()["verdict"] == "applied"


def test_an_event_signed_long_ago_is_refused_and_kept(api: StripeApi, invoice: Invoice) -> None:
    event = collected(api, invoice)
    body = json.dumps(event)
    answer = send(body, signed(body, at=time.time() - 301))
    assert answer.status_code == 400
    assert kept() == [(event["id"], "stale")]
    assert send(body, signed(body, at=time.time() - 290)).status_code == 200


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"data": None}, "puzzling"),
        ({"data": {"object": ["in_1"]}}, "puzzling"),
        ({"data": {"object": {"id": "in_of_nobody"}}}, "puzzling"),
        ({"account": "acct_of_a_customer"}, "puzzling"),
        ({"type": "customer.updated"}, "ignored"),
    ],
)
def test_an_event_of_another_shape_or_account_is_kept_and_changes_nothing(
    api: StripeApi, invoice: Invoice, change: dict[str, Any], verdict: str
) -> None:
    assert send(collected(api, invoice) | change).json()["verdict"] == verdict
    assert [each for _, each in kept()] == [verdict]
    assert not Payment.objects.exists()


@pytest.mark.parametrize("number", ["nonesuch", "3f0b6c1e-0000-4000-8000-000000000000"])
def test_an_invoice_at_stripe_that_is_none_of_ours_is_puzzling(
    api: StripeApi, invoice: Invoice, number: str
) -> None:
    event = collected(api, invoice)
    api.change("in_2", metadata={"penstock_invoice": number})
    assert send(event).json()["verdict"] == "puzzling"
    assert number in ProviderEvent.objects.get().reason
    api.change("in_2", metadata={})
    assert send(event | {"id": "evt_2"}).json()["verdict"] == "ignored"
    assert not Payment.objects.exists()


def test_an_event_is_no_more_than_a_hint(api: StripeApi, invoice: Invoice) -> None:
    """Signed, and it says that all was paid: nothing was."""
    request_payments()
    invoice.refresh_from_db()
    told = api.objects["/v1/invoices/in_2"] | {"status": "paid", "amount_paid": 3900}
    assert send(event_of("invoice.paid", told)).json()["verdict"] == "ignored"
    assert not Payment.objects.exists()


def test_what_cannot_be_read_is_sent_again(api: StripeApi, invoice: Invoice) -> None:
    event = collected(api, invoice)
    api.failing = {"/v1/invoices/in_2"}
    assert send(event).status_code == 503
    assert kept() == []
    api.failing = set()
    assert send(event).json()["verdict"] == "applied"


def test_money_for_what_the_bank_has_paid_already_is_shown_to_an_operator(
    api: StripeApi, invoice: Invoice
) -> None:
    event = collected(api, invoice)
    invoices.pay(invoice.id, reference="BANK-1")
    assert send(event).json()["verdict"] == "puzzling"
    assert str(invoice) in ProviderEvent.objects.get().reason
    assert Payment.objects.get().provider == invoices.MANUAL


def test_money_for_what_was_lessened_since_is_booked_in_full(
    api: StripeApi, acme: Project, invoice: Invoice
) -> None:
    event = collected(api, invoice)
    credit.adjust(acme.tenant.id, -5 * 10**9, reference="ticket-9", memo="goodwill")
    assert send(event).json()["verdict"] == "applied"
    held = balance_of(acme.tenant.id)
    assert (held.owed_nanos, held.prepaid_nanos) == (0, 5 * 10**9)


def test_what_came_is_never_changed(api: StripeApi, invoice: Invoice) -> None:
    send(collected(api, invoice))
    for change in ({"verdict": "ignored"}, {"event_id": "evt_other"}):
        with database_refuses(constraint="payment_guard"), transaction.atomic():
            ProviderEvent.objects.update(**change)
    with database_refuses(constraint="payment_guard"), transaction.atomic():
        ProviderEvent.objects.all().delete()


def test_where_stripe_is_not_expected_there_is_nothing(invoice: Invoice) -> None:
    assert send({"id": "evt_1"}, "t=1,v1=0").status_code == 404
    assert not ProviderEvent.objects.exists()


def test_a_second_timestamp_makes_an_old_signature_no_younger(
    api: StripeApi, invoice: Invoice
) -> None:
    body = json.dumps(collected(api, invoice))
    old = signed(body, at=time.time() - 3600)
    assert send(body, f"x=1, t={int(time.time())},{old}").status_code == 400
    assert [verdict for _, verdict in kept()] == ["stale"]


def test_a_signature_in_other_letters_than_ascii_is_refused(
    api: StripeApi, invoice: Invoice
) -> None:
    body = json.dumps(collected(api, invoice))
    assert send(body, f"t={int(time.time())},v1=\xe9").status_code == 400
    assert [verdict for _, verdict in kept()] == ["forged"]


@pytest.mark.parametrize("body", ["", "[]", '"evt"', "{}", '{"id": 7}', "\x00", "x" * 300_000])
def test_what_is_no_event_is_refused(api: StripeApi, body: str) -> None:
    assert send(body).status_code in {400, 413}


@pytest.mark.django_db(transaction=True)
def test_of_the_same_event_at_the_same_time_one_is_applied(
    api: StripeApi, invoice: Invoice
) -> None:
    event = collected(api, invoice)

    def deliver(_: int) -> str:
        try:
            return str(send(event).json()["verdict"])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        verdicts = sorted(pool.map(deliver, range(8)))
    assert verdicts == ["applied", *["replayed"] * 7]
    with operator_scope("test"):
        assert Payment.objects.count() == 1
