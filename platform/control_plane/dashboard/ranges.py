"""A range of days as it stands in the address: `from` and `to`, of UTC, both included."""

from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar, Final

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator

from control_plane.dashboard.forms import FilterForm
from control_plane.records.days import days_of
from inference.errors import InvalidRequest
from inference.usage.overview import Days
from inference.usage.reports import Granularity

# Before it nothing was served, and every day after it has days before it to compare with.
_FIRST_DAY: Final = date(2000, 1, 1)
_DAY: Final = {"type": "date"}


class RangeForm(FilterForm):
    """Filters of a range of days. The fields show the range in force: where the address names none
    it is the last `default_days`, or as many as its `days` says, until today."""

    default_days: ClassVar[int] = 30

    to = forms.DateField(label="To (UTC)", widget=forms.DateInput(attrs=_DAY))

    def __init__(self, data: Any) -> None:
        self.today = datetime.now(UTC).date()
        super().__init__(_with_range(data, self.today, self.default_days))
        # A word of Python's cannot be declared.
        first = forms.DateField(
            label="From (UTC)", widget=forms.DateInput(attrs=_DAY), required=False
        )
        first.is_optional = False  # type: ignore[attr-defined]  # for its label
        self.fields["from"] = first
        self.order_fields(["from", "to"])
        for name in ("from", "to"):
            earliest = MinValueValidator(_FIRST_DAY, f"Choose a day from {_FIRST_DAY.year} on.")
            self.fields[name].validators.append(earliest)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not {"from", "to"} & self.errors.keys():
            try:
                days_of(cleaned["from"], cleaned["to"] or self.today, self.granularity_of(cleaned))
            except InvalidRequest as refusal:
                raise ValidationError({"from": refusal.message}) from None
        return cleaned

    def granularity_of(self, cleaned: dict[str, Any]) -> Granularity:
        """Return what the report is by, on which its longest range depends."""
        return Granularity.DAY

    def days(self) -> Days:
        """Return the range in force; of one that is wrong the last days."""
        if self.errors.keys() & {"from", "to"}:
            return Days(_days_before(self.today, self.default_days - 1), self.today)
        last: date = self.cleaned_data["to"] or self.today
        return Days(self.cleaned_data["from"] or _days_before(last, self.default_days - 1), last)


def _with_range(data: Any, today: date, default_days: int) -> Any:
    """Return what the address says with the range that it leaves out."""
    shown = data.copy()
    asked = shown.get("days", "")
    count = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) <= 3 else 0
    if not shown.get("to"):
        shown["to"] = today.isoformat()
    if not shown.get("from"):
        last = _day(shown["to"]) or today
        shown["from"] = _days_before(last, (count or default_days) - 1).isoformat()
    return shown


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _days_before(day: date, days: int) -> date:
    """Return the day so many days earlier, or the first that can be chosen."""
    return max(_FIRST_DAY, day - timedelta(days=min(days, (day - date.min).days)))
