"""What the explorer is asked for, as it stands in the address: named as the API's parameters."""

from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError

from control_plane.dashboard.pages.usage.measures import DIMENSIONS, MEASURES, dimension_word
from control_plane.dashboard.pages.usage_choices import offer_used
from control_plane.dashboard.ranges import RangeForm
from inference.usage.reports import Granularity
from tenants.access.member_access import MemberAccess

_BY: Final = [("", "Nothing"), *((each.value, dimension_word(each)) for each in DIMENSIONS)]


class ExplorerForm(RangeForm):
    measure = forms.ChoiceField(
        label="Show", choices=[(name, each.word) for name, each in MEASURES.items()]
    )
    by = forms.ChoiceField(label="Split by", choices=_BY)
    then_by = forms.ChoiceField(label="And by", choices=_BY)
    project_id = forms.ChoiceField(label="Project")
    model = forms.ChoiceField()
    api_key_id = forms.ChoiceField(label="Key")
    created_by_id = forms.ChoiceField(label="Key made by")
    adapter = forms.ChoiceField()
    tier = forms.ChoiceField()
    granularity = forms.ChoiceField(
        label="Points", choices=[("", "Days"), (Granularity.HOUR.value, "Hours")]
    )
    drawn = forms.ChoiceField(label="Drawn as", choices=[("", "Stacked areas"), ("lines", "Lines")])
    cumulated = forms.BooleanField(label="Cumulated")
    compared = forms.BooleanField(label="Beside the period before")

    behind = (
        "then_by",
        "model",
        "api_key_id",
        "created_by_id",
        "adapter",
        "tier",
        "granularity",
        "drawn",
        "cumulated",
        "compared",
    )

    def __init__(self, data: Any, access: MemberAccess) -> None:
        super().__init__(data)
        offer_used(self, access)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if cleaned.get("then_by") and cleaned.get("then_by") == cleaned.get("by"):
            raise ValidationError({"then_by": "It is split by this already."})
        return cleaned

    def granularity_of(self, cleaned: dict[str, Any]) -> Granularity:
        return Granularity(cleaned.get("granularity") or Granularity.DAY)
