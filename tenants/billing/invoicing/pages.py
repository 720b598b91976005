"""An invoice as both its files tell it: the same rows, words and sums, in CSV and in PDF."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tenants.billing.models import Invoice, InvoiceLine, LineKind
from tenants.billing.periods import last_day
from tenants.money import decimal_dollars, dollars, dollars_and_cents
from tenants.spreadsheet import spreadsheet_cell

_COUNTS = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
_OF_LINES = (
    "kind",
    "model",
    "tier",
    "adapter",
    "description",
    "promised_percent",
    "measured_percent",
    "credit_percent",
    "amount_nanos",
)
COLUMNS = (
    "invoice",
    "kind",
    "month",
    "project",
    "model",
    "tier",
    "adapter",
    "description",
    *_COUNTS,
    "promised_percent",
    "measured_percent",
    "credit_percent",
    "granted_dollars",
    "amount_dollars",
    "amount_nanos",
    "line_id",
)


@dataclass(frozen=True, kw_only=True)
class Sum:
    """One line of what an invoice comes to. The last is what is to be paid."""

    label: str
    text: str
    nanos: int


def lines_of(invoice: Invoice) -> Sequence[InvoiceLine]:
    """With the invoice on each, for their filters."""
    lines = list(invoice.lines.order_by("position"))
    for line in lines:
        line.invoice = invoice
    return lines


def period_words(invoice: Invoice) -> str:
    return f"1 – {last_day(invoice.period):%-d %B %Y}"


def sums(invoice: Invoice) -> list[Sum]:
    """Exact but for the last: whole cents, and what they leave over is told before."""
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


def csv_text(invoice: Invoice) -> str:
    """A row for each line, and one for each sum."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    for row in _rows(invoice):
        writer.writerow({name: spreadsheet_cell(value) for name, value in row.items()})
    return out.getvalue()


def _rows(invoice: Invoice) -> Iterator[dict[str, object]]:
    number = str(invoice)
    for line in lines_of(invoice):
        row: dict[str, object] = {name: getattr(line, name) for name in _OF_LINES}
        row |= {name: getattr(line, name) for name in _COUNTS} if line.is_usage else {}
        if line.kind == LineKind.SLA_CREDIT:
            row["granted_dollars"] = decimal_dollars(line.granted_nanos)
        yield row | {
            "invoice": number,
            "month": f"{line.period:%Y-%m}",
            "project": line.project_name,
            "amount_dollars": decimal_dollars(line.amount_nanos),
            "line_id": line.id,
        }
    for total in sums(invoice):
        yield {
            "invoice": number,
            "kind": "sum",
            "month": invoice.month,
            "description": total.label,
            "amount_dollars": decimal_dollars(total.nanos),
            "amount_nanos": total.nanos,
        }
