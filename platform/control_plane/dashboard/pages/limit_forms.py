"""The forms of limits: a new one, a change of one, when a low balance is told."""

import uuid
from typing import Any, Final

from django import forms

from control_plane.dashboard.fields import PercentsField
from control_plane.dashboard.forms import FilterForm, PageForm
from control_plane.records.limit_rows import BUDGETS, NAMES, PERIODIC
from gpu_workers.protocol.policy import LimitName
from tenants.amount_fields import CountField, DollarsField
from tenants.models import Quota
from tenants.models.quota import MAX_ALERT_PERCENTS, default_alert_percents

_KINDS: Final = {
    "budget": BUDGETS,
    "tokens": (LimitName.TOKENS_PER_DAY, LimitName.TOKENS_PER_MONTH),
    "rate": tuple(name for name in NAMES if name not in PERIODIC),
}
_WHOLE, _PROJECT, _KEY = "organisation", "project", "key"
_HARD, _SOFT = "hard", "soft"

Choices = list[tuple[str, str]]


class LimitFilters(FilterForm):
    """Of the limits of projects and keys."""

    kind = forms.ChoiceField(
        choices=[
            ("", "All"),
            ("budget", "budgets"),
            ("tokens", "tokens a day or month"),
            ("rate", "rates and concurrency"),
        ]
    )
    project = forms.ChoiceField()

    def __init__(self, data: Any, *, projects: Choices) -> None:
        super().__init__(data)
        self.fields["project"].choices = [("", "All"), *projects]  # type: ignore[attr-defined]

    def limits(self) -> tuple[LimitName, ...] | None:
        return _KINDS.get(self.chosen().get("kind", ""))


class _LimitForm(PageForm):
    """`value` is of the limit that is chosen: money or a count."""

    value = forms.CharField(label="Amount")
    enforced = forms.ChoiceField(
        label="When it is reached",
        choices=[
            (_HARD, "Refuse further requests until there is room again"),
            (_SOFT, "Only tell us: nothing is refused"),
        ],
        widget=forms.RadioSelect,
        initial=_HARD,
    )
    alert_percents = PercentsField(
        label="Alert at (%)",
        most=MAX_ALERT_PERCENTS,
        initial=default_alert_percents,
        help_text="Of limits of a day or a month: owners and admins get an e-mail, and webhooks an "
        "event, when each share is used. More than 100 is for limits that refuse nothing.",
    )

    def set_unit(self, limit: LimitName | None) -> None:
        if limit in BUDGETS:
            self.fields["value"] = DollarsField(
                label="Amount ($)", help_text="Dollars, e.g. $250 or 0.50. Days and months are UTC."
            )
        else:
            self.fields["value"] = CountField(
                label="Amount", help_text="A whole number, e.g. 500, 250k or 2M."
            )

    def clean_value(self) -> int:
        value: int = self.cleaned_data["value"]
        if value < 1:
            raise forms.ValidationError("The amount must be more than zero.")
        return value

    def values(self) -> dict[str, Any]:
        """Return the quota's fields, by the names that the verbs have for them."""
        return {
            "value": self.cleaned_data["value"],
            "is_hard": self.cleaned_data["enforced"] == _HARD,
            "alert_percents": self.cleaned_data["alert_percents"],
        }


class NewLimitForm(_LimitForm):
    """`is_budget`: of money alone."""

    limit = forms.ChoiceField(label="What is limited")
    place = forms.ChoiceField(label="Applies to")
    field_order = ("place", "limit", "value")
    unique_field = "limit"

    def __init__(
        self, *args: Any, projects: Choices, keys: Choices, is_budget: bool, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        names = BUDGETS if is_budget else tuple(NAMES)
        self.fields["limit"].choices = [  # type: ignore[attr-defined]
            (name.value, NAMES[name]) for name in names
        ]
        of_projects = [(f"{_PROJECT}:{each}", name) for each, name in projects]
        of_keys = [(f"{_KEY}:{each}", name) for each, name in keys]
        groups = [("Projects", of_projects), ("API keys", of_keys)]
        self.fields["place"].choices = [  # type: ignore[attr-defined]
            ("", "Choose a place"),
            (_WHOLE, "The whole organisation"),
            *(group for group in groups if group[1]),
        ]
        given = self.data.get("limit")
        self.set_unit(LimitName(given) if given in names else names[0] if is_budget else None)
        self.fields["limit"].initial = LimitName.SPEND_PER_MONTH.value if is_budget else None
        if not self.is_bound and not is_budget:
            self.fields["value"].help_text = "E.g. 500, 250k or 2M; for money, $250."
        self.order_fields(self.field_order)

    def values(self) -> dict[str, Any]:
        kind, _, place_id = self.cleaned_data["place"].partition(":")
        values = {"limit": LimitName(self.cleaned_data["limit"]), **super().values()}
        if kind == _WHOLE:
            return values
        name = "project_id" if kind == _PROJECT else "api_key_id"
        return {**values, name: uuid.UUID(place_id)}


class LimitForm(_LimitForm):
    def __init__(self, data: Any = None, *, quota: Quota) -> None:
        initial = {
            "value": quota.value,
            "enforced": _HARD if quota.is_hard else _SOFT,
            "alert_percents": quota.alert_percents,
        }
        super().__init__(data, initial=initial)
        limit = LimitName(quota.limit)
        self.set_unit(limit)
        self.order_fields(("value", "enforced", "alert_percents"))
        if limit not in PERIODIC:
            del self.fields["alert_percents"]

    def values(self) -> dict[str, Any]:
        self.cleaned_data.setdefault("alert_percents", None)
        return super().values()


class BalanceAlertForm(PageForm):
    unique_field = "threshold_nanos"

    threshold_nanos = DollarsField(
        label="Alert at ($)",
        required=False,
        help_text="Owners, admins and billing get an e-mail, and webhooks an event, when the "
        "credit falls to this amount. Leave blank for no alert.",
    )


def place_initial(project_id: object, api_key_id: object) -> str | None:
    """Return the choice of the place that an address names."""
    if api_key_id is not None:
        return f"{_KEY}:{api_key_id}"
    return None if project_id is None else f"{_PROJECT}:{project_id}"
