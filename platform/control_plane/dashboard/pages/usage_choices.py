"""What usage can be narrowed to, as choices: projects, keys and who made them, models, adapters and
tiers that were used lately."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django import forms

from control_plane.dashboard.pages.key_forms import Choices, creator_choices
from control_plane.dashboard.pages.keys import id_in
from control_plane.web.figures import short_id
from inference.models import DailyUsage
from tenants.access.key_lists import key_creators
from tenants.access.member_access import MemberAccess
from tenants.models import ApiKey, Project, User
from tenants.permissions import Permission

# Of what can be chosen from; a link may name more.
_MOST: Final = 200
_CHOICES_OF_DAYS: Final = 31


def offer_used(form: forms.Form, access: MemberAccess) -> None:
    """Give each field of the form that is named so its choices, and with them the one that the
    address names."""
    used = _used() if {"model", "adapter", "tier"} & form.fields.keys() else []
    known: dict[str, Callable[[], Choices]] = {
        "model": lambda: _each(row["model"] for row in used),
        "adapter": lambda: _each(row["adapter"] for row in used),
        "tier": lambda: _each(row["tier"] for row in used),
        "project_id": lambda: _named(Project.objects.order_by("name")),
        "api_key_id": lambda: _named(ApiKey.objects.order_by("-created_at")),
        "created_by_id": lambda: creator_choices(_creators(access), access.user),
    }
    for name in known.keys() & form.fields.keys():
        asked = form.data.get(name, "")[:_MOST]
        choices = [("", "Anybody" if name == "created_by_id" else "All"), *known[name]()]
        can_be = id_in(asked) is not None if name.endswith("_id") else asked.isprintable()
        if asked and can_be and asked not in dict(choices):
            choices.append((asked, short_id(asked)))
        form.fields[name].choices = choices  # type: ignore[attr-defined]


def _creators(access: MemberAccess) -> list[User]:
    return list(key_creators()[:_MOST]) if access.may(Permission.VIEW_PEOPLE) else []


def _used() -> list[Any]:
    """Return models, adapters and tiers that were used lately."""
    since = datetime.now(UTC).date() - timedelta(days=_CHOICES_OF_DAYS)
    rows = DailyUsage.objects.filter(day__gte=since).order_by()
    return list(rows.values("model", "adapter", "tier").distinct()[: _MOST * 5])


def _each(values: Iterable[str]) -> Choices:
    return [(value, value) for value in sorted(set(values)) if value][:_MOST]


def _named(rows: Any) -> Choices:
    return [(str(row_id), name) for row_id, name in rows.values_list("id", "name")[:_MOST]]
