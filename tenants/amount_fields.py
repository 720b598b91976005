"""Form fields for counts and money, as people type them at every door: 250k, $0.05."""

from collections.abc import Callable
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError

from tenants import amounts

_LARGEST: Final = 2**63 - 1


class _AmountField(forms.CharField):
    """A whole number of units, of which people see and type another form."""

    read: Callable[[str], int]
    written: Callable[[int], str]
    problem: str

    def __init__(self, **options: Any) -> None:
        attrs = {"autocomplete": "off", "autocapitalize": "off"}
        options.setdefault("widget", forms.TextInput(attrs=attrs))
        super().__init__(max_length=40, **options)

    def clean(self, value: Any) -> Any:
        text = str(super().clean(value))
        if not text:
            return None
        try:
            amount = type(self).read(text)
        except ValueError:
            raise ValidationError(self.problem, code="invalid") from None
        if amount > _LARGEST:
            raise ValidationError("This is more than can be counted.", code="max_value")
        return amount

    def prepare_value(self, value: Any) -> Any:
        return type(self).written(value) if isinstance(value, int) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.clean(data) != initial)
        except ValidationError:
            return True


class CountField(_AmountField):
    read = staticmethod(amounts.whole_number)
    written = staticmethod(amounts.as_typed)
    problem = "Enter a whole number such as 500, 250,000, 250k or 2M."


class DollarsField(_AmountField):
    """In nano-dollars."""

    read = staticmethod(amounts.nano_dollars)
    written = staticmethod(amounts.dollars_as_typed)
    problem = "Enter an amount in dollars such as $250, 0.05 or $2k."


class MicroDollarsField(_AmountField):
    """Dollars, in micro-dollars: what a million tokens cost, or an hour of a GPU."""

    read = staticmethod(amounts.micro_dollars)
    written = staticmethod(amounts.micro_dollars_as_typed)
    problem = "Enter an amount in dollars such as $2.50 or 0.15, to six places."
