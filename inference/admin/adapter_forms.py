"""Forms of the operators' pages for adapters."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from gpu_workers.protocol.policy import WHOLE
from inference.adapters.lists import ready_versions
from inference.models import Adapter
from tenants.operator_forms import PercentField


class TrafficForm(forms.Form):
    """One version, or two; the second and its share go together."""

    main = forms.TypedChoiceField(label="Version", coerce=int, widget=UnfoldAdminSelectWidget())
    canary = forms.TypedChoiceField(
        label="Second version",
        coerce=int,
        empty_value=None,
        required=False,
        widget=UnfoldAdminSelectWidget(),
    )
    share = PercentField(
        label="Share of the second version (%)", required=False, help_text="From 0.1 to 99.9."
    )

    def __init__(self, data: Any = None, *, adapter: Adapter) -> None:
        initial = {
            "main": adapter.main,
            "canary": adapter.canary,
            "share": adapter.canary_permille,
        }
        super().__init__(data, initial=initial)
        ready = [(each.number, f"Version {each.number}") for each in ready_versions(adapter)]
        self.fields["main"].choices = ready  # type: ignore[attr-defined]
        self.fields["canary"].choices = [("", "none"), *ready]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        has_second = cleaned["canary"] is not None
        if has_second != (cleaned["share"] is not None):
            at, text = (
                ("share", "Say which share of the requests the second version answers.")
                if has_second
                else ("canary", "Choose the version that gets this share.")
            )
            self.add_error(at, ValidationError(text, code="required"))
        elif has_second and cleaned["canary"] == cleaned["main"]:
            same = ValidationError("This is the first version; choose another.", code="same")
            self.add_error("canary", same)
        elif has_second and not 0 < cleaned["share"] < WHOLE:
            self.add_error("share", ValidationError("From 0.1 to 99.9.", code="share"))
        return cleaned

    @property
    def shares(self) -> dict[int, int]:
        """Return the versions with their shares in permille."""
        chosen = self.cleaned_data
        if chosen["canary"] is None:
            return {chosen["main"]: WHOLE}
        return {chosen["main"]: WHOLE - chosen["share"], chosen["canary"]: chosen["share"]}


class NameForm(forms.Form):
    """Asks for a name before what cannot be undone."""

    name = forms.CharField(widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}))

    def __init__(self, *args: Any, name: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self._name = name
        self.fields["name"].label = f"Type {name} to confirm"

    def clean_name(self) -> str:
        typed: str = self.cleaned_data["name"]
        if typed != self._name:
            raise ValidationError(f"This is not {self._name}.", code="wrong_name")
        return typed
