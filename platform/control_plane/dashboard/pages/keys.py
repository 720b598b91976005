"""API keys of a tenant: the list, a new one, one of them. Its secret stands in the answer to the
form that made it, and nowhere else: not in the session, not in an address, not in a cache."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse

from control_plane.curl import first_request
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.key_forms import (
    Choices,
    KeyFilters,
    KeyForm,
    NewKeyForm,
    creator_choices,
)
from control_plane.records.limit_rows import LimitRow, rows_of
from gpu_workers.protocol.policy import LimitName
from inference.operations.limit_use import open_sequences
from inference.usage.reports import UsageQuery, has_completed_any, totals
from tenants.access.api_keys import IssuedApiKey, change_api_key, issue_api_key
from tenants.access.key_lists import KeyState, key_creators, list_api_keys, state_of
from tenants.access.member_access import MemberAccess
from tenants.access.projects import list_projects
from tenants.access.quotas import add_quota, list_quotas
from tenants.alerts.attention import KEY_EXPIRY
from tenants.errors import Conflict
from tenants.models import ApiKey, Project
from tenants.pagination import Page
from tenants.permissions import Permission, grantable_scopes

# What a choice can show; who has more comes from the project's own page.
_MOST_PROJECTS: Final = 500
_MOST_LIMITS: Final = 50
_USAGE_DAYS: Final = 30


@dataclass(frozen=True, kw_only=True)
class KeyRow:
    """A key as it is shown: `creator` as far as whoever looks may know people."""

    key: ApiKey
    state: KeyState
    creator: str
    expires_soon: bool
    is_rotating: bool

    @property
    def title(self) -> str:
        return self.key.title


def key_row(key: ApiKey, access: MemberAccess) -> KeyRow:
    now = datetime.now(UTC)
    state = state_of(key, now)
    is_active = state is KeyState.ACTIVE
    until = key.previous_expires_at
    return KeyRow(
        key=key,
        state=state,
        creator=creator_word(key, access),
        expires_soon=is_active and key.expires_at is not None and key.expires_at < now + KEY_EXPIRY,
        is_rotating=is_active and until is not None and until > now,
    )


class KeysPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW}
    template_name = "dashboard/keys/list.html"
    section = "keys"

    def get(self, request: HttpRequest) -> HttpResponse:
        projects = projects_to_choose(request.GET.get("project"))
        creators = list(key_creators()) if self.access.may(Permission.VIEW_PEOPLE) else []
        filters = KeyFilters(
            request.GET,
            projects=projects,
            creators=creator_choices(creators, self.access.user),
        )
        chosen = filters.chosen()
        page = page_of(request, _listing(chosen, filters.states()))
        context = {
            "page": Page(
                rows=[key_row(key, self.access) for key in page.rows],
                next_cursor=page.next_cursor,
            ),
            "filters": filters,
            "is_filtered": bool(chosen),
            "has_revoked": not page.rows and ApiKey.objects.exclude(revoked_at=None).exists(),
            "has_project": bool(projects),
            **self.write_access(Permission.WRITE_KEYS),
        }
        return self.show(context, fragment="list")


class NewKeyPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.WRITE_KEYS, "POST": Permission.WRITE_KEYS}
    template_name = "dashboard/keys/new.html"
    section = "keys"

    def get(self, request: HttpRequest) -> HttpResponse:
        form = self._form(initial={"project": request.GET.get("project"), "once": uuid.uuid4()})
        return self.show({"form": form, **self.write_access(Permission.WRITE_KEYS)})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = self._form(request.POST)
        issued = None
        if form.is_valid():
            issued = form.perform(lambda: self._issued(form))
        if issued is None:
            return self.show(
                {"form": form, **self.write_access(Permission.WRITE_KEYS)},
                fragment="form",
                status=422,
            )
        context = {
            "key": issued.record,
            "secret": issued.key,
            "curl": first_request(issued.record, issued.key),
            "is_new": not has_completed_any(),
        }
        return self.show(context, fragment="form")

    def _issued(self, form: NewKeyForm) -> IssuedApiKey:
        project = Project.objects.get(id=form.cleaned_data["project"])
        # An id of this tenant's own making: it tells nothing of another's.
        key_id = uuid.uuid5(self.tenant.id, str(form.cleaned_data["once"] or uuid.uuid4()))
        if ApiKey.objects.filter(id=key_id).exists():
            raise Conflict(
                "This form has made a key already, whose secret was shown once. If it is lost, "
                "revoke that key and open the form again."
            )
        member = self.access.as_member()
        issued = issue_api_key(project, by=member, id=key_id, **form.values())
        if budget := form.cleaned_data.get("budget"):
            add_quota(
                self.tenant,
                limit=LimitName.SPEND_PER_MONTH,
                value=budget,
                is_hard=True,
                api_key_id=issued.record.id,
                by=member,
            )
        return issued

    def _form(self, *args: Any, **more: Any) -> NewKeyForm:
        asked = self.request.POST.get("project") or self.request.GET.get("project")
        return NewKeyForm(
            *args,
            tenant=self.tenant,
            projects=projects_to_choose(asked),
            scopes=grantable_scopes(self.access.permissions),
            may_limit=self.access.may_change(Permission.WRITE_QUOTAS),
            **more,
        )


class KeyPage(TenantPage):
    """Everybody sees it; whoever may change it finds a form instead of a description."""

    permissions: ClassVar = {"GET": Permission.VIEW, "POST": Permission.WRITE_KEYS}
    template_name = "dashboard/keys/one.html"
    section = "keys"

    def get(self, request: HttpRequest, key_id: uuid.UUID) -> HttpResponse:
        key = key_of(key_id)
        return self.show(self._context(key, KeyForm(key=key)))

    def post(self, request: HttpRequest, key_id: uuid.UUID) -> HttpResponse:
        stored, key = key_of(key_id), key_of(key_id)
        form = KeyForm(request.POST, key=stored)
        if not form.is_valid() or not form.perform(lambda: self._changed(key, form.values())):
            return self.show(self._context(stored, form), fragment="form", status=422)
        messages.success(request, f"Key {key.title} was saved.")
        return self.go_to(request.path)

    def _changed(self, key: ApiKey, fields: dict[str, Any]) -> bool:
        change_api_key(key, by=self.access.as_member(), **fields)
        return True

    def _context(self, key: ApiKey, form: KeyForm) -> dict[str, Any]:
        row = key_row(key, self.access)
        return {
            "key": key,
            "row": row,
            "form": form,
            "limits": self._limits(key),
            "usage": self._usage(key),
            "may_revoke": self.access.may(Permission.WRITE_KEYS) and not key.is_revoked,
            "name_to_type": name_to_type(key),
            "what_ends": what_ends(key),
            "may_write_limits": self.access.may_change(Permission.WRITE_QUOTAS),
            **self.write_access(Permission.WRITE_KEYS),
        }

    def _limits(self, key: ApiKey) -> list[LimitRow]:
        return rows_of(self.tenant, list_quotas(limit=_MOST_LIMITS, api_key_id=key.id).rows)

    def _usage(self, key: ApiKey) -> dict[str, int] | None:
        if not self.access.may(Permission.VIEW_USAGE):
            return None
        today = datetime.now(UTC).date()
        first = today - timedelta(days=_USAGE_DAYS - 1)
        found = totals(UsageQuery(first=first, last=today, group_by=(), api_key_id=key.id))
        return found | {"tokens": found["prompt_tokens"] + found["completion_tokens"]}


def key_of(key_id: uuid.UUID) -> ApiKey:
    """Return one of the open scope's keys. Raises `ApiKey.DoesNotExist`."""
    return ApiKey.objects.select_related("project", "tenant", "created_by").get(id=key_id)


def name_to_type(key: ApiKey) -> str:
    """Return what is typed before a key ends: its name, or the part of it that everybody sees."""
    return key.name or key.public_id


def what_ends(key: ApiKey) -> str:
    """Say what ends with a key, and how much of it is open now."""
    count = open_sequences(key)
    open_now = "" if count is None else f" ({count or 'none'} open now)"
    if key.is_playground:
        return (
            f"What is open in this playground ends within five seconds{open_now}. What it "
            "generated until then is billed. As long as its member may make keys, the page makes "
            "another when they use it again."
        )
    return (
        f"Every program that uses {key.masked} is refused within a second, and its open streams "
        f"end within five seconds{open_now}. What they generated until then is billed. This cannot "
        "be undone."
    )


def projects_to_choose(asked: str | None) -> Choices:
    """Return projects to choose from, and with them the one that an address or a form names."""
    projects, asked_id = list_projects(limit=_MOST_PROJECTS).rows, id_in(asked)
    if asked_id is not None and asked_id not in {project.id for project in projects}:
        projects += Project.objects.filter(id=asked_id)
    return [(str(project.id), project.name) for project in projects]


def id_in(text: str | None) -> uuid.UUID | None:
    """Return the id that an address or a form holds, None for what is none."""
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        return None


def _listing(
    chosen: dict[str, Any], states: dict[str, Any]
) -> Callable[[str | None], Page[ApiKey]]:
    def listing(cursor: str | None) -> Page[ApiKey]:
        return list_api_keys(
            limit=ROWS,
            cursor=cursor,
            project_id=id_in(chosen.get("project")),
            created_by=id_in(chosen.get("creator")),
            search=chosen.get("q", ""),
            **states,
        )

    return listing


def creator_word(key: ApiKey, access: MemberAccess) -> str:
    """Name who made a key to those who may know who belongs here, and to themselves."""
    if key.created_by is None:
        return ""
    if key.created_by == access.user:
        return "you"
    return key.created_by.email if access.may(Permission.VIEW_PEOPLE) else "a member"
