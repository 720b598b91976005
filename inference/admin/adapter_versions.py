"""Operators' pages for versions of adapters: what validation found, who has them, what ends one."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter
from unfold.decorators import action, display

from gpu_workers.protocol.policy import WHOLE
from inference.adapters.lifecycle import archive_version, delete_version, set_traffic_split
from inference.adapters.worker_counts import may_be_held, state_of, worker_counts_of
from inference.admin.adapter_forms import NameForm
from inference.admin.adapter_verbs import AdapterVerbs, percent, workers_text
from inference.admin.adapters import BaseModelFilter
from inference.models import AdapterVersion
from inference.models.adapter import MOVES, AdapterState
from tenants.verbs import verb

_FACTS = ("public_name", "tenant", "condition", "share", "refusal_code", "refusal")
_DETAILS = (
    "rank",
    "parameters",
    "stored",
    "warnings",
    "sha256",
    "engine_name",
    "base_sha256",
    "created_at",
    "ready_at",
    "archived_at",
    "delete_at",
)


@admin.register(AdapterVersion)
class AdapterVersionAdmin(AdapterVerbs):
    """The list has states as they are on record; a version's page asks workers, too."""

    list_display = [
        "public_name",
        "tenant",
        "state_on_record",
        "share",
        "rank",
        "stored",
        "refusal_code",
        "created_at",
    ]
    list_filter = [
        ("tenant", AutocompleteSelectFilter),
        ("state", ChoicesDropdownFilter),
        BaseModelFilter,
    ]
    search_fields = [
        "adapter__slug",
        "adapter__tenant__slug",
        "adapter__tenant__name",
        "refusal_code",
        "opaque_name__startswith",
        "digest__startswith",
    ]
    search_help_text = "Name, tenant, refusal code, SHA-256 or the name that engines and logs have"
    list_select_related = ["adapter__tenant", "tenant"]
    ordering = ["-created_at"]
    readonly_fields = [*_FACTS, *_DETAILS]
    actions_detail: ClassVar = ["promote_one", "archive_one", "delete_one"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AdapterVersion]:
        versions: QuerySet[AdapterVersion] = super().get_queryset(request)
        return versions.select_related("adapter__tenant", "adapter__model", "tenant")

    def get_search_results(
        self, request: HttpRequest, rows: QuerySet[AdapterVersion], term: str
    ) -> tuple[QuerySet[AdapterVersion], bool]:
        """Find the versions of a public name, or the one that it names, too."""
        name, _, number = term.strip().partition("@")
        owner, slash, slug = name.partition("/")
        if slash:
            rows = rows.filter(adapter__tenant__slug=owner, adapter__slug=slug)
            is_number = number.isascii() and number.isdecimal() and len(number) < len(str(2**31))
            return rows.filter(number=number) if is_number else rows, False
        found: tuple[QuerySet[AdapterVersion], bool]
        found = super().get_search_results(request, rows, term)
        return found

    def get_fieldsets(self, request: HttpRequest, version: Any = None) -> Any:
        """Omit what has not happened."""
        return [
            (None, {"fields": [name for name in _FACTS if _has(version, name)]}),
            ("Details", {"fields": [name for name in _DETAILS if _has(version, name)]}),
        ]

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the actions that the version's state and its traffic allow."""
        version: AdapterVersion | None = self.get_object(request, object_id)
        if version is None:
            return []
        permille = version.adapter.permille_of(version.number)
        state = AdapterState(version.state)
        fits = {
            "promote_one": state is AdapterState.READY and permille != WHOLE,
            "archive_one": AdapterState.ARCHIVED in MOVES[state],
            "delete_one": state is not AdapterState.DELETED,
        }
        fitting = [name for name, is_fitting in fits.items() if is_fitting]
        if permille:
            fitting = [name for name in fitting if name == "promote_one"]
        if version.delete_at is not None:
            fitting = []
        actions = super().get_actions_detail(request, object_id)
        return [each for each in actions if each.action_name.endswith(tuple(fitting) or "-")]

    # Columns ------------------------------------------------------------------------------------

    @admin.display(description="version", ordering="adapter__slug")
    def public_name(self, version: AdapterVersion) -> str:
        return str(version)

    @display(
        description="state",
        ordering="state",
        label={
            "ready": "success",
            "refused": "danger",
            "queued": "info",
            "validating": "info",
            "archived": "default",
            "deleted": "default",
        },
    )
    def state_on_record(self, version: AdapterVersion) -> str:
        return str(version.state)

    @admin.display(description="state")
    def condition(self, version: AdapterVersion) -> str:
        """Say who has it, too, where workers may."""
        held = worker_counts_of(version.adapter.model.pool_id, [version])
        holders = None if held is None else held[version.number]
        state = state_of(version, holders)
        if not may_be_held(version):
            return state
        return f"{state}, workers that have it: {workers_text(holders)}"

    @admin.display(description="traffic")
    def share(self, version: AdapterVersion) -> str:
        return percent(version.adapter.permille_of(version.number))

    @admin.display(description="stored", ordering="stored_bytes")
    def stored(self, version: AdapterVersion) -> str:
        return filesizeformat(version.stored_bytes)

    @admin.display(description="SHA-256")
    def sha256(self, version: AdapterVersion) -> SafeString:
        return _hash(version.digest)

    @admin.display(description="name in engines and logs")
    def engine_name(self, version: AdapterVersion) -> SafeString:
        return _hash(version.opaque_name)

    @admin.display(description="SHA-256 of the base")
    def base_sha256(self, version: AdapterVersion) -> SafeString:
        return _hash(version.base_digest)

    # Actions ------------------------------------------------------------------------------------

    @action(
        description="Give it all traffic",
        url_path="promote",
        permissions=["act"],
        icon="published_with_changes",
    )
    def promote_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        version: AdapterVersion = self.found(request, object_id)
        if self.is_sure(request):
            return self.do(
                request,
                version,
                lambda: set_traffic_split(version.adapter, {version.number: WHOLE}),
                f"{version} answers all requests that name no version.",
            )
        return self.ask_first(
            request,
            title=f"Give {version} all traffic",
            text="Promotes it, or rolls back to it: from now on it answers all requests for "
            f"{version.adapter.name} that name no version. Open streams stay with the version that "
            "they have.",
            button="Give it all traffic",
        )

    @action(description="Archive", url_path="archive", permissions=["act"], icon="archive")
    def archive_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        version: AdapterVersion = self.found(request, object_id)
        if self.is_sure(request):
            done = f"{version} was archived."
            return self.do(request, version, lambda: archive_version(version), done)
        return self.ask_first(
            request,
            title=f"Archive {version}",
            text=verb("adapters archive").ends,
            button="Archive",
            is_final=True,
        )

    @action(description="Delete", url_path="end", permissions=["act"], icon="delete_forever")
    def delete_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        version: AdapterVersion = self.found(request, object_id)
        form = NameForm(request.POST if self.is_sure(request) else None, name=str(version))
        if form.is_valid():
            done = f"{version} answers no new request, and is deleted once nothing needs it."
            return self.do(request, version, lambda: delete_version(version), done)
        return self.ask_first(
            request,
            title=f"Delete {version}",
            text=verb("adapters-versions delete").ends,
            button="Delete",
            form=form,
            is_final=True,
        )


def _hash(text: str) -> SafeString:
    return format_html('<span class="long-words font-mono">{}</span>', text or "-")


def _has(version: AdapterVersion | None, name: str) -> bool:
    """Return whether the version has a value to show; a column that is no field always has."""
    return getattr(version, name, True) not in ("", None, [])
