"""What an invoice says, the same in all its files: its lines, its period, its sums."""

from collections.abc import Sequence
from dataclasses import dataclass

from tenants.billing.models import Invoice, InvoiceLine
from tenants.billing.periods import last_day
from tenants.money import dollars, dollars_and_cents


@dataclass(frozen=True, kw_only=True)
class Sum:
    """One line of what an invoice comes to. The last is what is to be paid."""

    label: str
    text: str
    nanos: int


def lines_of(invoice: Invoice) -> Sequence[InvoiceLine]:
    """Return the lines with the invoice on each, for their filters."""
    lines = list(invoice.lines.order_by("position"))
    for line in lines:
        line.invoice = invoice
    return lines


def period_words(invoice: Invoice) -> str:
    return f"1 – {last_day(invoice.period):%-d %B %Y}"


def sums(invoice: Invoice) -> list[Sum]:
    """Return the sums, exact but for the last: whole cents, with the remainder before it."""
    parts = [("Charges", invoice.charges_nanos)]
    if invoice.credits_nanos:
        parts.append(("Credits", invoice.credits_nanos))
    if invoice.brought_forward_nanos:
        parts.append(("Brought forward from the last invoice", invoice.brought_forward_nanos))
    if invoice.carried_nanos:
        parts.append(("Carried to the next invoice", -invoice.carried_nanos))
    shown = [Sum(label=label, text=dollars(nanos), nanos=nanos) for label, nanos in parts]
    nanos = invoice.payable_nanos
    return [*shown, Sum(label="Amount due", text=dollars_and_cents(nanos), nanos=nanos)]
