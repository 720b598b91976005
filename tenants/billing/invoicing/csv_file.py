"""An invoice as CSV: a row for each line, and one for each sum."""

import csv
import io
from collections.abc import Iterator

from tenants.billing.invoicing.contents import lines_of, sums
from tenants.billing.models import Invoice, LineKind
from tenants.money import decimal_dollars
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


def csv_text(invoice: Invoice) -> str:
    """Return CSV: a row for each line, and one for each sum."""
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
