"""Amounts as people type them: $250, 2M, 1,500, 1.5 k."""

import re
from decimal import Decimal
from typing import Final

from tenants.money import NANOS_PER_DOLLAR

_NANOS_PER_MICRO: Final = 1000
_AMOUNT: Final = re.compile(
    r"(?P<digits>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,19})(?P<fraction>\.[0-9]{1,9})? ?"
    r"(?P<suffix>[kmgbt]?)",
    re.IGNORECASE,
)
# A billion is G where numbers are shortened, B where people type them.
_SUFFIXES: Final = {"": 0, "k": 3, "m": 6, "g": 9, "b": 9, "t": 12}


def whole_number(text: str) -> int:
    """Read a count: 250000, 250,000, 250k, 2M. Raises `ValueError` for what is none."""
    number = _read(text)
    if number != int(number):
        raise ValueError("not a whole number")
    return int(number)


def nano_dollars(text: str) -> int:
    """Read an amount of money in dollars: 250, $250, $0.05, $2k. Raises `ValueError` for what is
    none, or finer than a nano-dollar."""
    nanos = _read(text.strip().removeprefix("$")) * NANOS_PER_DOLLAR
    if nanos != int(nanos):
        raise ValueError("finer than a nano-dollar")
    return int(nanos)


def micro_dollars(text: str) -> int:
    """Read an amount of money as `nano_dollars` does. Raises `ValueError` for what is none, or
    finer than a micro-dollar."""
    micros, finer = divmod(nano_dollars(text), _NANOS_PER_MICRO)
    if finer:
        raise ValueError("finer than a micro-dollar")
    return micros


def as_typed(number: int) -> str:
    """Write a count as `whole_number` reads it, without losing a digit: 2M, 1,234,567."""
    for suffix in ("G", "M", "k"):
        size: int = 10 ** _SUFFIXES[suffix.lower()]
        if size <= number < size * 1000 and number % (size // 10) == 0:
            return f"{Decimal(number) / size:f}{suffix}"
    return f"{number:,}"


def dollars_as_typed(nanos: int) -> str:
    """Write nano-dollars as `nano_dollars` reads them, without losing a digit: $250, $0.05."""
    dollars = Decimal(nanos) / NANOS_PER_DOLLAR
    if dollars == int(dollars):
        return f"${int(dollars):,}"
    text = f"{dollars:,f}".rstrip("0")
    whole, _, fraction = text.partition(".")
    return f"${whole}.{fraction:0<2}"


def micro_dollars_as_typed(micros: int) -> str:
    """Write micro-dollars as `micro_dollars` reads them."""
    return dollars_as_typed(micros * _NANOS_PER_MICRO)


def _read(text: str) -> Decimal:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise ValueError("not an amount")
    number = Decimal(found["digits"].replace(",", "") + (found["fraction"] or ""))
    return number.scaleb(_SUFFIXES[found["suffix"].lower()])
