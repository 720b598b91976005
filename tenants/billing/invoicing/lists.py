"""The invoices that a tenant's own people see: drafts are the operator's. Call these inside the
tenant's scope."""

import uuid
from collections.abc import Sequence
from datetime import date
from typing import Final

from tenants.billing.models import Invoice, InvoiceState
from tenants.pagination import Order, Page, page

INVOICES_ORDER: Final = Order(
    name="invoices",
    fields={"period": date.fromisoformat, "id": uuid.UUID},
    is_descending=True,
)
# The states that a tenant's people meet.
SHOWN_STATES: Final = (InvoiceState.ISSUED, InvoiceState.PAID, InvoiceState.VOID)


def list_invoices(
    *, state: InvoiceState | None = None, limit: int, cursor: str | None = None
) -> Page[Invoice]:
    """Return a page of invoices, the newest month first. Raises `BadCursor`."""
    rows = Invoice.objects.for_tenants()
    if state is not None:
        rows = rows.filter(state=state)
    return page(rows, INVOICES_ORDER, limit=limit, cursor=cursor)


def shown_invoice(invoice_id: uuid.UUID) -> Invoice:
    """Return one of them. Raises `Invoice.DoesNotExist`."""
    return Invoice.objects.for_tenants().get(id=invoice_id)


def unpaid_invoices() -> Sequence[Invoice]:
    """Return those that wait for their payment, the first due first."""
    return list(Invoice.objects.filter(state=InvoiceState.ISSUED).order_by("due_on"))
