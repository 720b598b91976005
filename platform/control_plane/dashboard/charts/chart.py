"""A chart of a time series, and bars, as values. Both are rendered as a table that stands by
itself; `charts.js` draws what the table says."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final

from control_plane.web import figures
from tenants.money import NANOS_PER_DOLLAR

Amount = int | float | Decimal | None
_CENTS: Final = 2


class Unit(StrEnum):
    """What amounts are of. Those of money are nano-dollars."""

    DOLLARS = "$"
    TOKENS = "tokens"
    REQUESTS = "requests"
    MILLISECONDS = "ms"
    SECONDS = "s"
    PERCENT = "%"
    TOKENS_PER_SECOND = "tokens/s"
    COUNT = ""


class Kind(StrEnum):
    LINES = "lines"
    STACKED = "stacked"


class State(StrEnum):
    """What a panel can show. A stale one has figures, and says since when they are old."""

    READY = "ready"
    EMPTY = "empty"
    LOADING = "loading"
    STALE = "stale"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Series:
    """`values`: one for each moment of the chart, None where nothing is known. `hue`: 1 to 8, or 0
    for grey; see `hues`."""

    name: str
    hue: int
    values: Sequence[Amount]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A line across the chart with a name: a promise or a limit."""

    name: str
    value: int | float


@dataclass(frozen=True, kw_only=True)
class Cell:
    value: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """`moment`: ISO 8601, a date where the row is a whole day of UTC."""

    moment: str
    text: str
    cells: list[Cell]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One question over time. `id` is unique on its page and stays the same as figures change.
    `moments` are dates (whole days of UTC) or aware datetimes (the beginnings of hours). Axes begin
    at zero, or are logarithmic and say so. `reason` is why a panel has nothing or old figures, and
    when it tries again."""

    id: str
    title: str
    unit: Unit
    moments: Sequence[date | datetime] = ()
    series: Sequence[Series] = ()
    kind: Kind = Kind.LINES
    is_logarithmic: bool = False
    targets: Sequence[Target] = ()
    state: State = State.READY
    reason: str = ""
    as_of: datetime | None = None

    def __post_init__(self) -> None:
        lengths = {len(each.values) for each in self.series}
        if lengths - {len(self.moments)}:
            raise ValueError(f"{self.id}: {len(self.moments)} moments, series of {sorted(lengths)}")
        if self.is_logarithmic and self.kind is Kind.STACKED:
            raise ValueError(f"{self.id}: areas cannot be stacked on a logarithmic axis")

    @property
    def is_hourly(self) -> bool:
        return any(isinstance(moment, datetime) for moment in self.moments)

    @property
    def has_figures(self) -> bool:
        return self.state in (State.READY, State.STALE) and bool(self.moments)

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to draw for no fault of anybody's."""
        return self.state is State.EMPTY or (self.state is State.READY and not self.moments)

    @property
    def target_texts(self) -> list[tuple[Target, str]]:
        return [(target, exact_text(target.value, self.unit)) for target in self.targets]

    @property
    def rows(self) -> list[Row]:
        return [
            Row(
                moment=_iso(moment),
                text=_moment_text(moment),
                cells=[_cell(each.values[place], self.unit) for each in self.series],
            )
            for place, moment in enumerate(self.moments)
        ]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """`share`: 0 to 100 of the longest; `address`: where the row leads, if anywhere."""

    name: str
    text: str
    share: int
    hue: int
    address: str = ""


def bars(
    amounts: Sequence[tuple[str, int | float]],
    unit: Unit,
    *,
    hues: dict[str, int] | None = None,
    addresses: dict[str, str] | None = None,
) -> list[Bar]:
    """Return a bar for each amount, in their order; without `hues` all have the first."""
    longest = max((amount for _, amount in amounts), default=0)
    return [
        Bar(
            name=name,
            text=exact_text(amount, unit),
            share=round(amount * 100 / longest) if longest > 0 else 0,
            hue=1 if hues is None else hues.get(name, 0),
            address=(addresses or {}).get(name, ""),
        )
        for name, amount in amounts
    ]


def exact_text(amount: Amount, unit: Unit) -> str:
    """Write an amount to its last digit, with thousands separators and its unit."""
    if amount is None:
        return "unknown"
    if unit is Unit.DOLLARS:
        return exact_dollars(int(amount))
    text = f"{amount:,}" if isinstance(amount, int) else _decimals(amount)
    return f"{text} {unit}" if unit is not Unit.COUNT else text


def exact_dollars(nanos: int) -> str:
    """Format nano-dollars to the last digit that is not zero, with two decimals at least."""
    sign, amount = ("-" if nanos < 0 else ""), abs(nanos)
    whole, rest = divmod(amount, NANOS_PER_DOLLAR)
    decimals = f"{rest:09d}".rstrip("0").ljust(_CENTS, "0")
    return f"{sign}${whole:,}.{decimals}"


def _decimals(amount: float | Decimal) -> str:
    text = f"{amount:,.2f}"
    return text.rstrip("0").rstrip(".")


def _cell(amount: Amount, unit: Unit) -> Cell:
    # Nanos stay whole numbers: what draws them reads a double, what people read is the text.
    return Cell(value="" if amount is None else str(amount), text=exact_text(amount, unit))


def _iso(moment: date | datetime) -> str:
    if isinstance(moment, datetime):
        return moment.astimezone(UTC).isoformat(timespec="seconds")
    return moment.isoformat()


def _moment_text(moment: date | datetime) -> str:
    if isinstance(moment, datetime):
        return figures.exact(moment)
    return f"{moment.day} {moment:%b %Y}"
