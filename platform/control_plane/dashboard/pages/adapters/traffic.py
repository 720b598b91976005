"""Which versions answer requests that name none: one, or two by weight; and in one step all by one
of them, which is a promotion as it is a roll-back."""

import uuid
from decimal import Decimal
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse

from control_plane.dashboard.actions import attempt
from control_plane.dashboard.forms import ChoiceWhereUsed, PageForm
from control_plane.dashboard.pages.adapters.adapters import ChangingPage
from gpu_workers.protocol.policy import WHOLE
from inference.adapters.lifecycle import set_traffic_split
from inference.adapters.lists import find_adapter, find_version, ready_versions
from inference.models.adapter import Adapter
from tenants.permissions import Permission

_ONE = "one"
_TWO = "two"
_LEAST = Decimal("0.1")


class TrafficForm(PageForm):
    """One version or two. The second and its share are asked for where two answer."""

    answers = forms.ChoiceField(
        label="Requests that name no version are answered by",
        choices=[(_ONE, "One version"), (_TWO, "Two versions, by weight (a canary)")],
        widget=forms.RadioSelect,
    )
    main = forms.TypedChoiceField(label="Version", coerce=int)
    canary = ChoiceWhereUsed(label="Second version")
    percent = forms.DecimalField(
        label="Share of the second version (%)",
        required=False,
        min_value=_LEAST,
        max_value=100 - _LEAST,
        decimal_places=1,
        max_digits=4,
        help_text="From 0.1 to 99.9. Requests with the same prompt_cache_key, safety_identifier or "
        "user get the same version.",
    )

    def __init__(self, data: Any = None, *, adapter: Adapter) -> None:
        permille = adapter.canary_permille
        initial = {
            "answers": _ONE if adapter.canary is None else _TWO,
            "main": adapter.main,
            "canary": adapter.canary or "",
            "percent": 10 if permille is None else Decimal(permille) / 10,
        }
        super().__init__(data, initial=initial)
        ready = [
            (version.number, f"Version {version.number}") for version in ready_versions(adapter)
        ]
        self.fields["main"].choices = ready  # type: ignore[attr-defined]
        choices = [("", "Choose a version"), *ready]
        self.fields["canary"].choices = choices  # type: ignore[attr-defined]
        self.fields["percent"].is_optional = False  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("answers") != _TWO:
            for name in ("canary", "percent"):
                self.errors.pop(name, None)
                cleaned[name] = None
            return cleaned
        for name, needed in (
            ("canary", "Choose the second version."),
            ("percent", "Say which share of the requests it answers."),
        ):
            if not cleaned.get(name) and name not in self.errors:
                self.add_error(name, ValidationError(needed, code="required"))
        if cleaned.get("canary") and cleaned["canary"] == str(cleaned.get("main")):
            same = ValidationError("This is the first version; choose another.", code="same")
            self.add_error("canary", same)
        return cleaned

    @property
    def shares(self) -> dict[int, int]:
        """Return the versions with their shares in permille."""
        chosen = self.cleaned_data
        if not chosen["canary"]:
            return {chosen["main"]: WHOLE}
        permille = int(chosen["percent"] * 10)
        return {chosen["main"]: WHOLE - permille, int(chosen["canary"]): permille}


class TrafficPage(ChangingPage):
    template_name = "dashboard/adapters/traffic.html"

    def get(self, request: HttpRequest, adapter_id: uuid.UUID) -> HttpResponse:
        adapter = find_adapter(adapter_id)
        return self.show(self._context(adapter, TrafficForm(adapter=adapter)))

    def post(self, request: HttpRequest, adapter_id: uuid.UUID) -> HttpResponse:
        adapter = find_adapter(adapter_id)
        form = TrafficForm(request.POST, adapter=adapter)
        if not form.is_valid() or not form.perform(lambda: set_traffic_split(adapter, form.shares)):
            return self.show(self._context(adapter, form), fragment="form", status=422)
        messages.success(request, "The traffic was changed. Gateways follow within a second.")
        return self.go_to(self.address_of(adapter))

    def _context(self, adapter: Adapter, form: TrafficForm) -> dict[str, Any]:
        has_choice = ready_versions(adapter).exists()
        return {
            "adapter": adapter,
            "form": form,
            "has_choice": has_choice,
            **self.write_access(Permission.WRITE_ADAPTERS),
        }


class PromotePage(ChangingPage):
    """Has one version answer all requests that name none."""

    permissions: ClassVar = {"POST": Permission.WRITE_ADAPTERS}

    def post(
        self, request: HttpRequest, adapter_id: uuid.UUID, version_id: uuid.UUID
    ) -> HttpResponse:
        version = find_version(adapter_id, version_id)
        shares = {version.number: WHOLE}
        if attempt(request, lambda: set_traffic_split(version.adapter, shares)):
            messages.success(
                request,
                f"Version {version.number} answers every new request that names no version. "
                "Streams that are open stay with theirs.",
            )
        return self.go_to(self.address_of(version.adapter))
