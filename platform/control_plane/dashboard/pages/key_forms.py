"""The forms of API keys: a new one, a change of one, its rotation."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError

from control_plane.dashboard.fields import LinesField, MomentField
from control_plane.dashboard.forms import ChoicesWhereUsed, FilterForm, PageForm
from gpu_workers.protocol.policy import Scope
from inference.models.catalog import models_visible_to
from tenants.access.api_keys import LONGEST_OVERLAP
from tenants.access.key_lists import KeyState
from tenants.amount_fields import DollarsField
from tenants.models import ApiKey, Tenant, User

_SCOPES: Final[dict[str, str]] = {
    Scope.INFERENCE: "inference: call models, over HTTP and websocket",
    Scope.USAGE_READ: "usage:read: read usage and costs",
    Scope.ADAPTERS_WRITE: "adapters:write: manage LoRA adapters",
    Scope.KEYS_WRITE: "keys:write: manage the keys of its own project",
    Scope.ADMIN: "admin: all of these, and projects, limits and members",
}
_NEVER, _ON_DATE = "never", "date"
# In days.
_LIFETIMES: Final = ("7", "30", "90", "365")
_ANY, _THESE = "any", "these"

Choices = list[tuple[str, str]]


class KeyFilters(FilterForm):
    """Of the list of keys. Those that were revoked are shown where they are asked for."""

    q = forms.CharField(
        label="Name",
        max_length=200,
        widget=forms.TextInput(attrs={"type": "search", "autocomplete": "off"}),
    )
    project = forms.ChoiceField()
    state = forms.ChoiceField(
        choices=[
            ("", "Not revoked"),
            *((state.value, state.value) for state in KeyState),
            (_ANY, "Any"),
        ]
    )
    creator = forms.ChoiceField(label="Created by")

    def states(self) -> dict[str, Any]:
        """Return what narrows `list_api_keys` to the keys of the chosen state."""
        state = self.chosen().get("state")
        if state in (None, _ANY):
            return {"with_revoked": state == _ANY}
        return {"state": KeyState(state)}

    def __init__(self, data: Any, *, projects: Choices, creators: Choices) -> None:
        super().__init__(data)
        self.fields["project"].choices = [("", "All"), *projects]  # type: ignore[attr-defined]
        self.fields["creator"].choices = [("", "Anybody"), *creators]  # type: ignore[attr-defined]


class _KeyForm(PageForm):
    """What a key may be. What is asked for only where another field says so is hidden elsewhere."""

    name = forms.CharField(
        max_length=200, required=False, help_text="What the key is for, e.g. web backend or ci."
    )
    scopes = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple, help_text="What requests with the key may do."
    )
    expires = forms.ChoiceField(label="Expires")
    expires_at = MomentField(
        label="Expires at (UTC)", required=False, help_text="Requests are refused from then on."
    )
    models_of = forms.ChoiceField(
        label="Models",
        choices=[
            (_ANY, "Every model that this organisation may use"),
            (_THESE, "Only these"),
        ],
        widget=forms.RadioSelect,
        initial=_ANY,
    )
    allowed_models = ChoicesWhereUsed(label="Allowed models")
    allowed_adapters = LinesField(
        label="Adapters", help_text="Names of LoRA adapters, one a line. Leave blank for all."
    )
    allowed_networks = LinesField(
        label="Client addresses",
        help_text="Addresses or CIDR blocks that may use the key, one a line, e.g. 192.0.2.0/24. "
        "Leave blank for any address.",
    )

    def __init__(
        self, *args: Any, tenant: Tenant, current_models: list[str] | None = None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        names = [model.name for model in models_visible_to(tenant.id)]
        choices = [(name, name) for name in names]
        choices += [
            (name, f"{name} (no longer available)")
            for name in current_models or []
            if name not in names
        ]
        self.fields["allowed_models"].choices = choices  # type: ignore[attr-defined]
        self.fields["expires_at"].is_optional = False  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        """Keep what is asked for where it is asked for, and ask for it there."""
        cleaned = super().clean() or self.cleaned_data
        expires = cleaned.get("expires")
        lifetime = timedelta(days=int(expires)) if expires in _LIFETIMES else None
        for field, is_asked, value, problem in (
            (
                "allowed_models",
                cleaned.get("models_of") == _THESE,
                None,
                "Choose at least one model.",
            ),
            (
                "expires_at",
                expires == _ON_DATE,
                None if lifetime is None else datetime.now(UTC) + lifetime,
                "Say when the key expires.",
            ),
        ):
            if not is_asked:
                self.errors.pop(field, None)
                cleaned[field] = value
            elif not cleaned.get(field) and field not in self.errors:
                self.add_error(field, problem)
        return cleaned

    def values(self) -> dict[str, Any]:
        """Return the key's fields, by the names that the verbs have for them."""
        names = (
            "name",
            "scopes",
            "expires_at",
            "allowed_networks",
            "allowed_models",
            "allowed_adapters",
        )
        return {name: self.cleaned_data[name] for name in names}


class NewKeyForm(_KeyForm):
    """`scopes` are those that whoever asks may give, a budget what they may set if `may_limit`."""

    project = forms.ChoiceField(help_text="Its limits and its usage are the key's too.")
    budget = DollarsField(
        label="Monthly budget ($)",
        required=False,
        help_text="E.g. $50. Requests are refused once the key has spent it, until the next month "
        "(UTC). Leave blank for none of its own.",
    )
    # One for each form that was shown: what is posted again makes no second key.
    once = forms.UUIDField(required=False, widget=forms.HiddenInput)
    field_order = ("project", "name", "budget")

    def __init__(
        self,
        *args: Any,
        projects: Choices,
        scopes: list[Scope],
        may_limit: bool,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        if not may_limit:
            del self.fields["budget"]
        if len(projects) != 1:
            projects = [("", "Choose a project"), *projects]
        self.fields["project"].choices = projects  # type: ignore[attr-defined]
        self.fields["scopes"].choices = _described(scopes)  # type: ignore[attr-defined]
        self.fields["scopes"].initial = [Scope.INFERENCE.value]
        self.fields["expires"].choices = [  # type: ignore[attr-defined]
            (_NEVER, "Never"),
            *((days, f"In {days} days") for days in _LIFETIMES),
            (_ON_DATE, "At a moment of your choice"),
        ]

    def clean_budget(self) -> int | None:
        budget: int | None = self.cleaned_data["budget"]
        if budget == 0:
            raise forms.ValidationError("The budget must be more than zero.")
        return budget


class KeyForm(_KeyForm):
    """A change of a key. Scopes can be taken from it, not added."""

    def __init__(self, data: Any = None, *, key: ApiKey) -> None:
        initial = {
            "name": key.name,
            "scopes": key.scopes,
            "expires": _NEVER if key.expires_at is None else _ON_DATE,
            "expires_at": key.expires_at,
            "models_of": _ANY if key.allowed_models is None else _THESE,
            "allowed_models": key.allowed_models,
            "allowed_adapters": key.allowed_adapters,
            "allowed_networks": key.allowed_networks,
        }
        super().__init__(
            data, initial=initial, tenant=key.tenant, current_models=key.allowed_models
        )
        self._key = key
        scopes = self.fields["scopes"]
        scopes.choices = _described(key.scopes)  # type: ignore[attr-defined]
        scopes.help_text = "Scopes can be taken from a key and not added; make a new key for more."
        self.fields["expires"].choices = [  # type: ignore[attr-defined]
            (_NEVER, "Never"),
            (_ON_DATE, "At a moment of your choice"),
        ]

    def values(self) -> dict[str, Any]:
        """Return the fields. What was left alone is as it was: not in another order, and an expiry
        not rounded to the second."""
        values, stored = super().values(), self._key.expires_at
        if stored is not None and values["expires_at"] == stored.replace(microsecond=0):
            values["expires_at"] = stored
        for name in ("scopes", "allowed_models"):
            kept = getattr(self._key, name)
            if set(values[name] or ()) == set(kept or ()):
                values[name] = kept
        return values


class RotationForm(PageForm):
    """For how long the secret before goes on working. `seen` is when the key was rotated last, as
    the form was shown: what is posted again does not rotate again."""

    overlap = forms.TypedChoiceField(
        label="The present secret works",
        choices=[
            ("0", "no longer: it is refused within a second"),
            ("3600", "for 1 more hour"),
            ("86400", "for 24 more hours"),
            ("604800", "for 7 more days"),
            (str(int(LONGEST_OVERLAP.total_seconds())), "for 30 more days"),
        ],
        coerce=lambda seconds: timedelta(seconds=int(seconds)),
        initial="86400",
        widget=forms.RadioSelect,
        help_text="Until then both secrets work, so that programs can be changed one by one.",
    )
    seen = forms.CharField(required=False, max_length=40, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, key: ApiKey) -> None:
        self._rotated = "" if key.rotated_at is None else key.rotated_at.isoformat()
        super().__init__(data, initial={"seen": self._rotated})

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "seen" in self.data and cleaned.get("seen") != self._rotated:
            raise ValidationError(
                "The key was rotated since this form was shown. Open the page again to rotate it "
                "once more.",
                code="rotated",
            )
        return cleaned


def creator_choices(creators: list[User], me: User) -> Choices:
    others = [user for user in creators if user != me]
    return [(str(me.id), "You"), *((str(user.id), user.email) for user in others)]


def _described(scopes: list[Scope] | list[str]) -> Choices:
    return [(str(Scope(scope)), _SCOPES[scope]) for scope in scopes]
