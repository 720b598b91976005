"""Form fields of the operators' admin for list-valued columns."""

from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminTextareaWidget


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
