"""An invoice as a PDF. The same invoice gives the same bytes: nothing of the clock is in it.

Text is set in the viewer's Helvetica, which knows Western letters; `PENSTOCK_INVOICE_FONT` names a
TrueType font that is embedded instead, for names in other scripts.
"""

import io
from collections.abc import Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import KeepTogether, Paragraph, SimpleDocTemplate, Spacer, Table

from tenants.billing.invoicing.contents import lines_of, period_words, sums
from tenants.billing.invoicing.pdf_style import (
    INK,
    MARGIN,
    PLAIN,
    ROWS,
    WIDTH,
    Face,
    NumberedCanvas,
)
from tenants.billing.models import (
    CREDIT_LINE_KINDS,
    Invoice,
    InvoiceLine,
    InvoiceState,
    LineKind,
)
from tenants.money import dollars_and_cents


def pdf_bytes(invoice: Invoice) -> bytes:
    """Return the invoice as a PDF in A4, as many pages as it takes."""
    out = io.BytesIO()
    face = Face()
    document = SimpleDocTemplate(
        out,
        pagesize=A4,
        # A frame keeps six points to itself on each side.
        leftMargin=MARGIN - 6,
        rightMargin=MARGIN - 6,
        topMargin=18 * mm,
        bottomMargin=22 * mm,
        title=f"Invoice {invoice}",
        author=_seller(invoice)["name"],
        creator="Penstock",
        invariant=1,
    )
    lines = lines_of(invoice)
    parts = [
        _head(invoice, face),
        Spacer(1, 9 * mm),
        _parties(invoice, face),
        Spacer(1, 9 * mm),
        *_charges(invoice, lines, face),
        *_credits(lines, face),
        _sums(invoice, face),
        *_service_levels(lines, face),
        *_payment_instructions(invoice, face),
    ]

    def canvas(*args: Any, **options: Any) -> Canvas:
        return NumberedCanvas(*args, foot=f"{_seller(invoice)['name']}  ·  {invoice}", face=face,
                               **options)  # fmt: skip

    document.build(parts, canvasmaker=canvas)
    return out.getvalue()


# Parts, in the order of the page -----------------------------------------------------------------


def _seller(invoice: Invoice) -> dict[str, str]:
    """Return the seller's details: of an issued invoice as they were then."""
    return dict(invoice.seller_details) or invoice.seller.details()


def _one_line(text: str) -> str:
    """Join the lines of a name: one of many lines would be taller than a page."""
    return " ".join(text.split())


def _head(invoice: Invoice, face: Face) -> Table:
    seller = _seller(invoice)
    facts = [seller["address"]]
    facts += [f"Tax ID {seller['tax_id']}"] if seller["tax_id"] else []
    facts += [seller["email"]] if seller["email"] else []
    left = [
        face.paragraph(seller["name"], style="name"),
        Spacer(1, 1.5 * mm),
        face.paragraph("\n".join(facts), style="small"),
    ]
    right: list[Any] = [face.paragraph("Invoice", style="title", alignment=TA_RIGHT)]
    mark = {
        InvoiceState.DRAFT.value: "DRAFT – this is no invoice yet",
        InvoiceState.VOID.value: "VOID",
    }.get(invoice.state)
    if mark:
        right += [Spacer(1, 2 * mm), face.paragraph(mark, style="alarm", alignment=TA_RIGHT)]
    if invoice.state == InvoiceState.VOID and invoice.void_reason:
        right.append(face.paragraph(invoice.void_reason, style="small", alignment=TA_RIGHT))
    return Table([[left, right]], colWidths=[WIDTH * 0.55, WIDTH * 0.45], style=PLAIN)


def _parties(invoice: Invoice, face: Face) -> Table:
    facts = [("Number", invoice.number or "–"), ("Period", period_words(invoice))]
    if invoice.issued_at is not None:
        facts.append(("Issued", f"{invoice.issued_at:%-d %B %Y}"))
    if invoice.due_on is not None and invoice.payable_nanos:
        facts.append(("Due", f"{invoice.due_on:%-d %B %Y}"))
    table = Table(
        [[face.paragraph(n, style="label"), face.paragraph(v)] for n, v in facts],
        colWidths=[18 * mm, WIDTH * 0.5 - 18 * mm],
        style=[
            *PLAIN,
            ("BOTTOMPADDING", (0, 0), (-1, -1), 1.5),
            ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
        ],
    )
    left = [
        face.paragraph("Billed to", style="label"),
        Spacer(1, 1 * mm),
        face.paragraph(_one_line(invoice.buyer_name), style="name"),
        Spacer(1, 4 * mm),
        face.paragraph("Amount due", style="label"),
        face.marked(dollars_and_cents(invoice.payable_nanos), style="due", fontSize=18, leading=23),
    ]
    return Table([[left, table]], colWidths=[WIDTH * 0.5, WIDTH * 0.5], style=PLAIN)


def _charges(invoice: Invoice, lines: Sequence[InvoiceLine], face: Face) -> list[Any]:
    """Return the table of charges: usage by project, then late usage, then adjustments."""
    heads = ["Usage", "Requests", "Prompt", "Cached", "Completion", "Amount"]
    rows: list[list[Any]] = [_header(heads, face)]
    style = list(ROWS)
    title = None
    for line in lines:
        if line.kind not in {LineKind.USAGE, LineKind.LATE_USAGE, LineKind.ADJUSTMENT}:
            continue
        if (above := _title(invoice, line)) != title:
            title = above
            style += [("SPAN", (0, len(rows)), (-1, len(rows)))]
            style += [("TOPPADDING", (0, len(rows)), (-1, len(rows)), 7)]
            rows.append([face.paragraph(_one_line(above), style="strong"), *[""] * 5])
        if line.kind == LineKind.ADJUSTMENT:
            style += [("SPAN", (0, len(rows)), (4, len(rows)))]
            rows.append(
                [face.paragraph(_one_line(line.description), style="cell"), *[""] * 4,
                 face.amount(line.amount_nanos)]
            )  # fmt: skip
            continue
        counts = (line.requests, line.prompt_tokens, line.cached_tokens, line.completion_tokens)
        rows.append(
            [
                _what(line, face),
                *(face.marked(f"{n:,}", style="cell", alignment=TA_RIGHT) for n in counts),
                face.amount(line.amount_nanos),
            ]
        )
    if len(rows) == 1:
        return []
    widths = [WIDTH - 112 * mm, 16 * mm, 22 * mm, 20 * mm, 22 * mm, 32 * mm]
    return [Table(rows, colWidths=widths, repeatRows=1, style=style), Spacer(1, 5 * mm)]


def _title(invoice: Invoice, line: InvoiceLine) -> str:
    if line.kind == LineKind.ADJUSTMENT:
        return "Adjustments"
    project = f"Project {line.project_name}"
    if line.kind == LineKind.LATE_USAGE:
        return f"{project}, recorded late for {line.period:%B %Y}"
    return project


def _what(line: InvoiceLine, face: Face) -> Paragraph:
    more = " · ".join(filter(None, [line.tier, line.adapter and f"adapter {line.adapter}"]))
    return face.marked(
        f'{escape(face.fit(line.model))}<br/><font size="7.5" color="#6b7f86">'
        f"{escape(face.fit(more))}</font>",
        style="cell",
    )


def _credits(lines: Sequence[InvoiceLine], face: Face) -> list[Any]:
    paid = [line for line in lines if line.kind in CREDIT_LINE_KINDS]
    if not paid:
        return []
    rows = [_header(["Credits", "Amount"], face)]
    rows += [
        [face.paragraph(_one_line(line.description), style="cell"), face.amount(line.amount_nanos)]
        for line in paid
    ]
    table = Table(rows, colWidths=[WIDTH - 34 * mm, 34 * mm], repeatRows=1, style=ROWS)
    return [table, Spacer(1, 5 * mm)]


def _header(names: Sequence[str], face: Face) -> list[Any]:
    first, *others = names
    return [
        face.paragraph(first, style="label"),
        *(face.paragraph(name, style="label", alignment=TA_RIGHT) for name in others),
    ]


def _sums(invoice: Invoice, face: Face) -> KeepTogether:
    *parts, due = sums(invoice)
    rows = [[face.paragraph(part.label, style="cell"), face.amount(part.nanos)] for part in parts]
    rows.append(
        [
            face.paragraph(due.label, style="due"),
            face.marked(due.text, style="due", alignment=TA_RIGHT),
        ]
    )
    table = Table(
        rows,
        colWidths=[62 * mm, 34 * mm],
        hAlign="RIGHT",
        style=[
            *PLAIN,
            ("TOPPADDING", (0, 0), (-1, -1), 2.5),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 2.5),
            ("LINEABOVE", (0, -1), (-1, -1), 0.8, INK),
            ("TOPPADDING", (0, -1), (-1, -1), 6),
        ],
    )
    return KeepTogether([table])


def _service_levels(lines: Sequence[InvoiceLine], face: Face) -> list[Any]:
    broken = [line for line in lines if line.kind == LineKind.SLA_CREDIT]
    if not broken:
        return []
    rows = [_header(["Service levels", "Promised", "Measured", "Credit", "Credited"], face)]
    for line in broken:
        promise = dict(_PROMISES).get(line.promise, line.promise)
        cells = [f"{line.promised_percent:.3f} %", f"{line.measured_percent:.3f} %",
                 f"{line.credit_percent} %"]  # fmt: skip
        rows.append(
            [
                face.paragraph(f"{line.tier}: {promise}", style="cell"),
                *(face.paragraph(cell, style="cell", alignment=TA_RIGHT) for cell in cells),
                face.amount(line.granted_nanos),
            ]
        )
    widths = [WIDTH - 92 * mm, 20 * mm, 20 * mm, 18 * mm, 34 * mm]
    table = Table(rows, colWidths=widths, style=ROWS)
    note = "Credit is a share of what the month's usage in that tier cost. What exceeds what "
    note += "was owed stays as credit for usage to come."
    return [Spacer(1, 9 * mm), KeepTogether([table, Spacer(1, 2 * mm),
            face.paragraph(note, style="small")])]  # fmt: skip


_PROMISES: Final = (
    ("uptime", "uptime of the month"),
    ("ttft", "requests whose first token came in time"),
    ("inter_token", "tokens that followed in time"),
)


def _payment_instructions(invoice: Invoice, face: Face) -> list[Any]:
    if not invoice.payable_nanos:
        return [Spacer(1, 9 * mm), face.paragraph("There is nothing to pay.", style="small")]
    text = _seller(invoice)["payment_instructions"]
    if not text:
        return []
    return [
        Spacer(1, 9 * mm),
        KeepTogether(
            [face.paragraph("How to pay", style="label"), Spacer(1, 1 * mm), face.paragraph(text)]
        ),
    ]
