"""/operators/components: every component in all its states, for whoever builds a page. Operators
only; to anybody else the page does not exist."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from control_plane.dashboard.charts.samples import sample_bars, samples
from control_plane.dashboard.forms import FilterForm, PageForm
from control_plane.dashboard.page import sign_in_first
from control_plane.records.limit_rows import LimitRow
from control_plane.web.pages import private, signed_in
from gpu_workers.protocol.policy import LimitName
from tenants.pagination import Page
from tenants.permissions import Permission, roles_with


class SampleForm(PageForm):
    """One field of each kind."""

    name = forms.CharField(help_text="What the key is for.")
    email = forms.EmailField(label="E-mail address")
    role = forms.ChoiceField(choices=[("viewer", "viewer"), ("admin", "admin")])
    pace = forms.ChoiceField(
        label="When a model is saturated",
        choices=[("wait", "Wait in the queue"), ("refuse", "Refuse at once")],
        widget=forms.RadioSelect,
    )
    note = forms.CharField(widget=forms.Textarea(attrs={"rows": 3}), required=False)
    alerts = forms.BooleanField(label="E-mail alerts", required=False)


class SampleFilters(FilterForm):
    q = forms.CharField(label="Name", widget=forms.TextInput(attrs={"type": "search"}))
    state = forms.ChoiceField(choices=[("", "Any"), ("active", "active")])


@require_safe
def components(request: HttpRequest) -> HttpResponse:
    user = signed_in(request)
    if user is None:
        return sign_in_first(request)
    if not user.is_staff:
        raise Http404
    return private(render(request, "dashboard/components.html", _samples()))


def _samples() -> dict[str, Any]:
    now = datetime.now(UTC)
    initial = {"name": "ci", "email": "alice@acme.example", "role": "viewer", "pace": "wait"}
    return {
        "form": SampleForm(initial=initial, prefix="right"),
        "wrong_form": SampleForm({"wrong-email": "alice@"}, prefix="wrong"),
        "filters": SampleFilters({"state": "active"}),
        "limits": [
            LimitRow(limit=LimitName.TOKENS_PER_DAY, value=10**6, used=used, resets_at=None)
            for used in (None, 120_000, 830_000, 1_000_000)
        ],
        "moments": [
            now,
            now - timedelta(minutes=5),
            now - timedelta(hours=3),
            now - timedelta(days=2),
            now - timedelta(days=90),
            now + timedelta(hours=30),
        ],
        "id": uuid.UUID("6f1c2a34-9b7e-4c0d-8a55-0d3b1e2f4a6c"),
        "curl": 'curl "https://penstock.example/api/v1/me" \\\n  -H "Authorization: Bearer $KEY"',
        "secret": "sample-0123456789-shown-once-and-never-again",
        "pages": [
            Page[int](rows=[1], next_cursor="next"),
            Page[int](rows=[1], next_cursor=None),
        ],
        "charts": samples(),
        "bars": sample_bars(),
        "writers": roles_with(Permission.WRITE_PROJECTS),
    }
