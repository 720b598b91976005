"""Numbers, amounts, moments and ids as people read them. What is shortened here stands whole in the
title of its element."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from tenants.money import NANOS_PER_CENT, NANOS_PER_DOLLAR

_STEPS: Final = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
# From here on the date says more than a number of days.
_OLD: Final = timedelta(days=30)


def short_number(number: int) -> str:
    """Shorten to three significant digits: 999, 12.3 k, 1.24 M."""
    for size, suffix in _STEPS:
        # 999,600 is 1 M: it must not round up to 1000 k.
        if abs(number) >= size - size // 2000:
            return f"{_three_digits(number / size)} {suffix}"
    return str(number)


def short_dollars(nanos: int) -> str:
    """Format nano-dollars with two decimals, below a cent with four significant digits."""
    sign, amount = ("-" if nanos < 0 else ""), abs(nanos)
    if amount >= NANOS_PER_CENT or amount == 0:
        return f"{sign}${Decimal(amount) / NANOS_PER_DOLLAR:,.2f}"
    digits = f"{Decimal(amount) / NANOS_PER_DOLLAR:.9f}"
    significant = len(digits) - len(digits.lstrip("0."))
    return f"{sign}${digits[: significant + 4].rstrip('0')}"


def short_milliseconds(milliseconds: float | None) -> str:
    """Shorten a duration to three significant digits: 850 ms, 1.24 s, 2 min 5 s."""
    if milliseconds is None:
        return "unknown"
    if milliseconds < 999.5:
        return f"{_three_digits(milliseconds)} ms"
    if milliseconds < 59_950:
        return f"{_three_digits(milliseconds / 1000)} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds} s"


def comparison(now: int, before: int) -> str:
    """Say how an amount compares with that of the period before."""
    if before == 0:
        return "nothing before" if now else "as before"
    percent = round((now - before) * 100 / before)
    if percent == 0:
        return "as before"
    return f"{abs(percent)} % {'more' if percent > 0 else 'less'} than before"


def change(now: int, before: int) -> str:
    """Say in a cell how an amount compares with that of the period before: +12 %, or new."""
    if before == 0:
        return "new" if now else "as before"
    percent = round((now - before) * 100 / before)
    return f"{percent:+d} %" if percent else "as before"


def relative(moment: datetime, now: datetime | None = None) -> str:
    """Say how far away a moment is, in its largest unit; far ones by their date."""
    away = (now or datetime.now(UTC)) - moment
    if abs(away) >= _OLD:
        return day(moment)
    seconds = int(abs(away).total_seconds())
    if seconds < _MINUTE:
        return "just now"
    if seconds < _HOUR:
        text = f"{seconds // _MINUTE} min"
    elif seconds < _DAY:
        text = f"{seconds // _HOUR} h"
    else:
        days = seconds // _DAY
        text = f"{days} day{'' if days == 1 else 's'}"
    return f"{text} ago" if away > timedelta(0) else f"in {text}"


def exact(moment: datetime) -> str:
    """Format a moment to the minute, in UTC: 22 Nov 2026, 19:05 UTC."""
    return f"{day(moment)}, {moment.astimezone(UTC):%H:%M} UTC"


def day(moment: datetime) -> str:
    moment = moment.astimezone(UTC)
    return f"{moment.day} {moment:%b %Y}"


def short_id(text: str) -> str:
    """Shorten in the middle, where ids are alike least often looked at."""
    return text if len(text) <= 16 else f"{text[:8]}…{text[-4:]}"


def _three_digits(number: float) -> str:
    places = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    text = f"{number:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
