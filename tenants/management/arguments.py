"""What people type as a command's argument, read once for all commands. Each raises the error that
argparse tells in one sentence."""

import re
from argparse import ArgumentTypeError
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.dateparse import parse_datetime

_DURATION = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_PERCENT = re.compile(r"\d{1,3}(\.\d)?( ?%)?", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta:
    """Parse a duration such as `90s`, `15m`, `24h` or `30d`. Raises `ArgumentTypeError`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ArgumentTypeError(f"expected a duration such as 90s, 15m, 24h or 30d, got {text!r}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def moment(text: str) -> datetime:
    """Parse a duration from now, or a date (UTC) with or without a time. Raises
    `ArgumentTypeError`."""
    if _DURATION.fullmatch(text.strip()):
        return timezone.now() + duration(text)
    try:
        found = parse_datetime(text.strip())
    except ValueError:
        found = None
    if found is None:
        raise ArgumentTypeError(
            f"expected a time such as 30d, 2027-01-31 or 2027-01-31T18:00:00Z, got {text!r}"
        )
    return found if timezone.is_aware(found) else found.replace(tzinfo=UTC)


def day(text: str) -> date:
    """Parse a day such as `2026-11-30`. Raises `ArgumentTypeError`."""
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise ArgumentTypeError(f"expected a day such as 2026-11-30, got {text!r}") from None


def dollar_amount(text: str) -> Decimal:
    """Parse an amount in dollars, exact to the nano-dollar. Raises `ArgumentTypeError`."""
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite() or amount < 0 or _digits(amount) > 9:
        raise ArgumentTypeError(f"expected an amount in dollars such as 250 or 0.05, got {text!r}")
    return amount


def permille(text: str) -> int:
    """Parse a percentage with at most one decimal, as permille. Raises `ArgumentTypeError`."""
    if not _PERCENT.fullmatch(text.strip()) or Decimal(text.strip().rstrip("% ")) > 100:
        raise ArgumentTypeError(f"expected percent such as 50 or 12.5, 100 at most, got {text!r}")
    return int(Decimal(text.strip().rstrip("% ")) * 10)


def _digits(amount: Decimal) -> int:
    """Return the number of digits after the point."""
    exponent = amount.normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def one_sentence(error: ValidationError) -> str:
    """Return what is wrong with which field, in one line."""
    if not hasattr(error, "error_dict"):
        return " ".join(error.messages)
    parts = []
    for field, messages in error.message_dict.items():
        text = " ".join(messages)
        parts.append(text if field == "__all__" else f"{field.replace('_', ' ')}: {text}")
    return " ".join(parts)
