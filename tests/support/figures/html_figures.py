"""Figures and tables as they stand in a page."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"br", "img", "input", "meta", "link", "hr", "use", "path", "rect", "line", "circle"}


@dataclass(kw_only=True)
class Cell:
    """`title` is what is told on hovering, where it is told."""

    text: str = ""
    title: str = ""


@dataclass(kw_only=True)
class Single(Cell):
    """`period` says of when it is, and how it compares with the period before."""

    period: Cell = field(default_factory=Cell)


@dataclass(kw_only=True)
class Table:
    """`id` is that of the nearest element around it that has one; `rows` are those of its body and
    its foot, each with its heading first."""

    id: str = ""
    head: list[str] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)

    def row(self, name: str) -> list[Cell]:
        """Return the one row whose heading begins so."""
        (found,) = [row for row in self.rows if row[0].text.startswith(name)]
        return found


@dataclass(kw_only=True)
class Figures:
    """Of a page: its tables, and its single figures by their label."""

    tables: list[Table]
    singles: dict[str, Single]

    def table(self, *head: str) -> Table:
        """Return the one table whose head begins so."""
        (found,) = [each for each in self.tables if tuple(each.head[: len(head)]) == head]
        return found

    def with_id(self, name: str) -> Table:
        (found,) = [each for each in self.tables if each.id == name]
        return found


def figures_of(html: str) -> Figures:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return Figures(tables=reader.tables, singles=reader.singles)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Table] = []
        self.singles: dict[str, Single] = {}
        self._ids: list[str] = []
        # What text belongs to, innermost.
        self._cell: Cell | None = None
        self._is_in_head = False
        self._label = Cell()
        self._amount = Single()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "br":
            self.handle_data(" ")
        if tag not in _VOID:
            self._ids.append(given.get("id") or (self._ids[-1] if self._ids else ""))
        match tag, given.get("class", ""):
            case "table", _:
                self.tables.append(Table(id=self._ids[-1]))
            case "thead", _:
                self._is_in_head = True
            case "tbody", _:
                self._is_in_head = False
            case "tr", _ if self.tables and not self._is_in_head:
                self.tables[-1].rows.append([])
            case "th" | "td", _ if self.tables:
                self._cell = Cell(title=given.get("title", ""))
                if not self._is_in_head:
                    self.tables[-1].rows[-1].append(self._cell)
            case "p", "figure-label":
                self._cell = self._label = Cell()
            case "p", "figure-amount":
                self._cell = self._amount = Single()
            case "p", "figure-period":
                self._cell = self._amount.period
            case "span", _ if self._cell is self._amount and "title" in given:
                self._amount.title = given["title"]

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID and self._ids:
            self._ids.pop()
        cell = self._cell
        is_single = any(cell is each for each in (self._label, self._amount, self._amount.period))
        if cell is None or tag not in ({"p"} if is_single else {"th", "td"}):
            return
        cell.text, self._cell = _plain(cell.text), None
        if cell is self._amount:
            self.singles[self._label.text] = self._amount
        elif not is_single and self._is_in_head:
            self.tables[-1].head.append(cell.text)

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.text += data


def _plain(text: str) -> str:
    return " ".join(text.split())
