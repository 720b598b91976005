"""Amounts of money as people read them. Everywhere else they are integer nano-dollars."""


def dollars(nanos: int) -> str:
    """Whole cents, and more digits only where they say something: $12.50, -$0.000125."""
    sign, (whole, fraction) = "-" if nanos < 0 else "", divmod(abs(nanos), 10**9)
    digits = f"{fraction:09d}".rstrip("0").ljust(2, "0")
    return f"{sign}${whole:,}.{digits}"
