"""Fields of forms for what Django has none: lists, percentages, moments; amounts are in
`tenants.amount_fields`."""

from datetime import UTC, datetime
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError

_MOMENT: Final = "%Y-%m-%dT%H:%M:%S"
_MOST_LINES: Final = 100


class LinesField(forms.CharField):
    """A list of words, one a line; None if there are none."""

    def __init__(self, **options: Any) -> None:
        attrs = {"rows": 3, "spellcheck": "false", "autocapitalize": "off"}
        options.setdefault("widget", forms.Textarea(attrs=attrs))
        super().__init__(required=False, **options)

    def clean(self, value: Any) -> Any:
        lines = [line.strip() for line in str(super().clean(value)).splitlines()]
        words = [line for line in lines if line]
        if len(words) > _MOST_LINES:
            raise ValidationError(f"At most {_MOST_LINES} lines, got {len(words)}.")
        return words or None

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value


class PercentsField(forms.CharField):
    """Percentages with commas between, in order and each once; [] if there are none."""

    def __init__(self, *, most: int, **options: Any) -> None:
        super().__init__(required=False, max_length=200, **options)
        self._most = most

    def clean(self, value: Any) -> list[int]:
        texts = str(super().clean(value)).replace("%", " ").replace(",", " ").split()
        if not all(text.isascii() and text.isdecimal() and len(text) <= 4 for text in texts):
            raise ValidationError("Enter whole percentages with commas between, e.g. 50, 80, 100.")
        percents = sorted({int(text) for text in texts})
        if len(percents) > self._most:
            raise ValidationError(f"At most {self._most} percentages, got {len(percents)}.")
        if any(not 1 <= percent <= 1000 for percent in percents):
            raise ValidationError("Each percentage is from 1 to 1000.")
        return percents

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value


class LabelNamesField(forms.CharField):
    """Names with commas between; [] if there are none. What a name may be is the verb's to say."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, max_length=400, **options)

    def clean(self, value: Any) -> list[str]:
        names = (name.strip() for name in str(super().clean(value)).split(","))
        return [name for name in names if name]

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value


class MomentField(forms.DateTimeField):
    """A moment in UTC, to the second."""

    def __init__(self, **options: Any) -> None:
        widget = forms.DateTimeInput(attrs={"type": "datetime-local", "step": 1}, format=_MOMENT)
        formats = [_MOMENT, "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d"]
        super().__init__(widget=widget, input_formats=formats, **options)

    def to_python(self, value: Any) -> datetime | None:
        moment = super().to_python(value)
        try:
            return None if moment is None else moment.astimezone(UTC)
        except OverflowError:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from None
