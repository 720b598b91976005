"""Form fields of the operators' admin: columns as people read and write them."""

from decimal import Decimal
from typing import Any

from django import forms
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminTextareaWidget,
)


class LinesField(forms.CharField):
    """A list of words, one per line; None if blank."""

    def __init__(self, *, placeholder: str = "", **options: Any) -> None:
        options.setdefault("required", False)
        attrs = {"rows": 3, "placeholder": placeholder, "spellcheck": "false"}
        super().__init__(widget=UnfoldAdminTextareaWidget(attrs=attrs), **options)

    def to_python(self, value: Any) -> Any:
        words = [line.strip() for line in (super().to_python(value) or "").splitlines()]
        return [word for word in words if word] or None

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool((initial or None) != self.to_python(data))


class CheckboxesField(forms.MultipleChoiceField):
    """One or more of a few fixed choices."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminCheckboxSelectMultipleWidget(), **options)


class PercentField(forms.DecimalField):
    """Percent with one decimal, of a column in permille."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            min_value=0,
            max_value=100,
            decimal_places=1,
            widget=UnfoldAdminDecimalFieldWidget(),
            **options,
        )

    def prepare_value(self, value: Any) -> Any:
        """Return a column's value in percent; what somebody typed is in percent already."""
        return Decimal(value) / 10 if isinstance(value, int) else value

    def clean(self, value: Any) -> Any:
        percent = super().clean(value)
        return None if percent is None else int(percent * 10)

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)
