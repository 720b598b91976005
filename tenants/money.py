"""Amounts of money as people read them. Everywhere else they are integer nano-dollars."""

from typing import Final

NANOS_PER_DOLLAR: Final = 1_000_000_000
NANOS_PER_CENT: Final = 10_000_000


def whole_cents(nanos: int) -> int:
    """Return what can be asked for of an amount, in nano-dollars: whole cents, rounded down,
    nothing below zero."""
    return max(0, nanos // NANOS_PER_CENT * NANOS_PER_CENT)


def dollars(nanos: int) -> str:
    """Format nano-dollars exactly: whole cents, and more digits only where they are not zero:
    `$12.50`, `-$0.000125`."""
    whole, fraction = divmod(abs(nanos), NANOS_PER_DOLLAR)
    return _signed(nanos, f"${whole:,}.{_digits(fraction, at_least=2)}")


def decimal_dollars(nanos: int, *, digits: int = 2) -> str:
    """Return dollars as a decimal number that programs read, exact, with at least so many digits
    after the point: `1234.56`."""
    whole, fraction = divmod(abs(nanos), NANOS_PER_DOLLAR)
    return _signed(nanos, f"{whole}.{_digits(fraction, at_least=digits)}")


def dollars_and_cents(nanos: int) -> str:
    """Format nano-dollars that are whole cents: `$1,234.56`."""
    whole, cents = divmod(abs(nanos) // NANOS_PER_CENT, 100)
    return _signed(nanos, f"${whole:,}.{cents:02d}")


def _signed(nanos: int, text: str) -> str:
    return f"-{text}" if nanos < 0 else text


def _digits(nanos: int, *, at_least: int) -> str:
    return f"{nanos:09d}".rstrip("0").ljust(at_least, "0")
