"""Figures as the dashboards' tables say them; what is not known is a dash."""

from typing import Final

UNKNOWN: Final = "–"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def share_of(part: int | None, whole: int | None) -> str:
    """Return a share of what was asked for; a dash where nothing was, or where it is not told."""
    return percent(None if part is None or not whole else part / whole)


def count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def duration(milliseconds: int | None) -> str:
    """Return a duration in its unit: 840 ms, 12.4 s, 5 min 3 s."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60:,} min {int(seconds) % 60} s"
