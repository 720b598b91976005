"""Amounts of money as people read them. Everywhere else they are integer nano-dollars."""

from typing import Final

NANOS_PER_DOLLAR: Final = 1_000_000_000
NANOS_PER_CENT: Final = 10_000_000


def whole_cents(nanos: int) -> int:
    """What of an amount can be asked for: whole cents, rounded down, nothing below zero; in
    nano-dollars."""
    return max(0, nanos // NANOS_PER_CENT * NANOS_PER_CENT)


def dollars(nanos: int) -> str:
    """All that there is of it: whole cents, and more digits only where they say something:
    `$12.50`, `-$0.000125`."""
    whole, fraction = divmod(abs(nanos), NANOS_PER_DOLLAR)
    digits = f"{fraction:09d}".rstrip("0").ljust(2, "0")
    return _signed(nanos, f"{whole:,}.{digits}")


def dollars_and_cents(nanos: int) -> str:
    """To the cent, for an amount that is whole cents: `$1,234.56`."""
    whole, cents = divmod(abs(nanos) // NANOS_PER_CENT, 100)
    return _signed(nanos, f"{whole:,}.{cents:02d}")


def _signed(nanos: int, text: str) -> str:
    return f"-${text}" if nanos < 0 else f"${text}"
