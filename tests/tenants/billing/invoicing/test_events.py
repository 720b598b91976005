"""A tenant is told of its invoices: when one is issued and when it is paid, once each."""

import pytest
from django.db import transaction

from gpu_workers.protocol.messages import Prices
from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.models import Project
from tenants.webhooks.models import Event
from tests.support.billing.billed_usage import OCTOBER, use

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]
# A dollar a token, so that a request comes to something.
DEAR = Prices(10**12, 5 * 10**11, 10**12, 1000)


def told() -> list[tuple[str, object, object]]:
    events = Event.objects.order_by("created_at")
    return [(event.type, event.data["number"], event.data["payable_nanos"]) for event in events]


def test_an_invoice_is_told_of_when_it_is_issued_and_when_it_is_paid(acme: Project) -> None:
    use(acme, prices=DEAR)
    draft = draft_invoice(acme.tenant, OCTOBER)
    assert draft is not None and told() == []
    with pytest.raises(RuntimeError), transaction.atomic():
        invoices.issue(draft.id)
        raise RuntimeError("on purpose")
    assert told() == []
    invoice = invoices.issue(draft.id)
    issued = ("invoice.issued", invoice.number, 13 * 10**9)
    assert told() == [issued]
    event = Event.objects.get()
    assert event.tenant_id == acme.tenant.id
    assert event.data == {
        "invoice_id": str(invoice.id),
        "number": invoice.number,
        "month": "2026-10",
        "payable_nanos": 13 * 10**9,
        "due_on": str(invoice.due_on),
    }
    for _ in range(2):
        invoices.pay(invoice.id, reference="bank 7")
    assert told() == [issued, ("invoice.paid", invoice.number, 13 * 10**9)]


def test_an_invoice_of_nothing_is_told_of_as_paid_too(acme: Project) -> None:
    use(acme)
    draft = draft_invoice(acme.tenant, OCTOBER)
    assert draft is not None
    invoice = invoices.issue(draft.id)
    assert told() == [(kind, invoice.number, 0) for kind in ("invoice.issued", "invoice.paid")]
