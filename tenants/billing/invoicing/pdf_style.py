"""How an invoice's PDF looks: its paper, colours, type and tables."""

from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

import structlog
from django.conf import settings
from reportlab.lib import colors
from reportlab.lib.enums import TA_RIGHT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph

from tenants.money import dollars

log = structlog.get_logger(__name__)

INK: Final = colors.HexColor("#10272e")
QUIET: Final = colors.HexColor("#6b7f86")
RULE: Final = colors.HexColor("#d5dfe2")
ACCENT: Final = colors.HexColor("#0b6e86")
ALARM: Final = colors.HexColor("#b42318")
MARGIN: Final = 20 * mm
WIDTH: Final = A4[0] - 2 * MARGIN
PLAIN: Final[list[Any]] = [
    ("LEFTPADDING", (0, 0), (-1, -1), 0),
    ("RIGHTPADDING", (0, 0), (-1, -1), 0),
    ("TOPPADDING", (0, 0), (-1, -1), 0),
    ("BOTTOMPADDING", (0, 0), (-1, -1), 0),
    ("VALIGN", (0, 0), (-1, -1), "TOP"),
]
ROWS: Final[list[Any]] = [
    ("LEFTPADDING", (0, 0), (0, -1), 0),
    ("RIGHTPADDING", (-1, 0), (-1, -1), 0),
    ("TOPPADDING", (0, 0), (-1, -1), 3),
    ("BOTTOMPADDING", (0, 0), (-1, -1), 3),
    ("VALIGN", (0, 0), (-1, -1), "TOP"),
    ("LINEBELOW", (0, 0), (-1, 0), 0.8, INK),
    ("LINEBELOW", (0, 1), (-1, -1), 0.4, RULE),
]


class Face:
    """The fonts of one document, and text in them."""

    def __init__(self) -> None:
        path = Path(settings.PENSTOCK_INVOICE_FONT) if settings.PENSTOCK_INVOICE_FONT else None
        self.is_embedded = path is not None
        self.regular, self.bold = "Helvetica", "Helvetica-Bold"
        if path is not None:
            stem = path.stem.removesuffix("-Regular")
            bold = path.with_name(f"{stem}-Bold{path.suffix}")
            self.regular, self.bold = path.stem, bold.stem if bold.exists() else path.stem
            for name, file in ((self.regular, path), (self.bold, bold)):
                if file.exists() and name not in pdfmetrics.getRegisteredFontNames():
                    pdfmetrics.registerFont(TTFont(name, str(file)))

    def paragraph(self, text: str, *, style: str = "body", **changes: Any) -> Paragraph:
        """Set plain `text`; each of its lines stays one."""
        markup = "<br/>".join(escape(self.fit(line)) for line in text.splitlines())
        return self.marked(markup, style=style, **changes)

    def marked(self, markup: str, *, style: str = "body", **changes: Any) -> Paragraph:
        size, bold, color = _STYLES[style]
        options = {
            "fontName": self.bold if bold else self.regular,
            "fontSize": size,
            "leading": size * 1.35,
            "textColor": color,
            **changes,
        }
        return Paragraph(markup, ParagraphStyle(style, **options))

    def amount(self, nanos: int) -> Paragraph:
        """Set an amount with all nine digits, so that columns align; cents on are quiet."""
        text = dollars(nanos)
        whole, _, fraction = text.partition(".")
        fraction = fraction.ljust(9, "0")
        quiet = f'<font color="#9aabb1" size="6.5">{fraction[2:]}</font>'
        return self.marked(f"{whole}.{fraction[:2]}{quiet}", style="cell", alignment=TA_RIGHT)

    def fit(self, text: str) -> str:
        """Replace what Helvetica has no glyph for."""
        if self.is_embedded:
            return text
        fitting = text.encode("cp1252", errors="replace").decode("cp1252")
        if fitting != text:
            log.warning("invoice_text_needs_a_font", setting="PENSTOCK_INVOICE_FONT")
        return fitting


_STYLES: Final[dict[str, tuple[float, bool, colors.Color]]] = {
    "title": (24, True, INK),
    "name": (11, True, INK),
    "body": (9, False, INK),
    "small": (8, False, QUIET),
    "label": (7.5, False, QUIET),
    "cell": (8.5, False, INK),
    "strong": (8.5, True, INK),
    "due": (13, True, ACCENT),
    "alarm": (11, True, ALARM),
}


class NumberedCanvas(Canvas):  # type: ignore[misc]
    """Writes the foot of each page when it is known how many there are."""

    def __init__(self, *args: Any, foot: str, face: Face, **options: Any) -> None:
        super().__init__(*args, **options)
        self._foot, self._face = foot, face
        self._pages: list[dict[str, Any]] = []

    def showPage(self) -> None:  # noqa: N802 - reportlab's name
        self._pages.append(dict(self.__dict__))
        self._startPage()

    def save(self) -> None:
        pages = self._pages
        for number, page in enumerate(pages, 1):
            self.__dict__.update(page)
            self.setStrokeColor(RULE)
            self.setLineWidth(0.5)
            self.line(MARGIN, 16 * mm, A4[0] - MARGIN, 16 * mm)
            self.setFont(self._face.regular, 7.5)
            self.setFillColor(QUIET)
            self.drawString(MARGIN, 11.5 * mm, self._face.fit(self._foot))
            self.drawRightString(A4[0] - MARGIN, 11.5 * mm, f"Page {number} of {len(pages)}")
            super().showPage()
        super().save()
