"""What a parameter of an address that narrows a list may be, beside what django-filter has."""

import re
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar, Final

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.utils.dateparse import parse_date, parse_datetime

from gpu_workers.protocol.labels import is_label_name, label_value
from tenants.money import NANOS_PER_DOLLAR

_MAX_MS: Final = 2**31 - 1
# As answers, headers and pages show it.
_REQUEST_ID: Final = "(chatcmpl-|cmpl-)?[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}"
_DOLLARS: Final = r"[0-9]{1,9}(\.[0-9]{1,9})?"


class _MomentField(forms.Field):
    """A moment with its offset from UTC, or a day, which begins at midnight UTC."""

    def to_python(self, value: Any) -> datetime | None:
        text = str(value or "").strip()
        try:
            day = parse_date(text) if len(text) == len("2030-01-31") else None
            moment = datetime(day.year, day.month, day.day, tzinfo=UTC) if day else None
            moment = moment or parse_datetime(text)
            if text and (moment is None or moment.tzinfo is None):
                raise ValueError
            return moment.astimezone(UTC) if moment else None
        except (ValueError, OverflowError):
            raise ValidationError(
                "expected a date and time as 2030-01-31T12:00:00Z, or a day as 2030-01-31."
            ) from None


class MomentFilter(django_filters.IsoDateTimeFilter):  # type: ignore[misc]
    field_class = _MomentField


class _RequestIdField(forms.Field):
    def to_python(self, value: Any) -> uuid.UUID | None:
        text = str(value or "").strip().lower()
        if text and re.fullmatch(_REQUEST_ID, text) is None:
            raise ValidationError("expected a whole request id, as answers show it.")
        return uuid.UUID(text.removeprefix("chat").removeprefix("cmpl-")) if text else None


class RequestIdFilter(django_filters.CharFilter):  # type: ignore[misc]
    """Of a request, as a UUID or as it stands in an answer."""

    field_class = _RequestIdField
    described: ClassVar = {"type": "string", "pattern": f"^{_REQUEST_ID}$"}


class _DollarField(forms.Field):
    """Dollars, exact to the nano-dollar, as a number of nano-dollars."""

    def to_python(self, value: Any) -> int | None:
        text = str(value or "").strip().removeprefix("$")
        if text and re.fullmatch(_DOLLARS, text) is None:
            raise ValidationError("expected an amount in dollars as 0.05.")
        return int(Decimal(text) * NANOS_PER_DOLLAR) if text else None


class DollarFilter(django_filters.CharFilter):  # type: ignore[misc]
    field_class = _DollarField
    described: ClassVar = {"type": "string", "pattern": f"^{_DOLLARS}$"}


class _LabelField(forms.Field):
    """A label's name and value, with a colon between."""

    def to_python(self, value: Any) -> tuple[str, str] | None:
        text = str(value or "").strip()
        name, _, of_whom = text.partition(":")
        found = label_value(of_whom)
        if text and not (is_label_name(name) and found):
            raise ValidationError("expected a label and its value, as user:alice.")
        return (name, found) if text else None


class LabelFilter(django_filters.CharFilter):  # type: ignore[misc]
    field_class = _LabelField
    described: ClassVar = {
        "type": "string",
        "pattern": r"^(user|metadata\.[A-Za-z0-9_.-]{1,64}):.*[^ ].*$",
    }


class MillisecondsFilter(django_filters.NumberFilter):  # type: ignore[misc]
    field_class = forms.IntegerField
    described: ClassVar = {"type": "integer", "minimum": 0, "maximum": _MAX_MS}

    def __init__(self, **options: Any) -> None:
        wrong = f"expected a whole number of milliseconds, up to {_MAX_MS}."
        messages = dict.fromkeys(("invalid", "min_value", "max_value"), wrong)
        super().__init__(min_value=0, max_value=_MAX_MS, error_messages=messages, **options)

    def get_max_validator(self) -> None:
        """Have the field's own bound alone."""
