"""Operators' pages for adapters: which versions answer, what each is, and what ends them."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import AutocompleteSelectFilter, DropdownFilter
from unfold.decorators import action, display

from inference.adapters.lifecycle import delete_adapter, set_traffic_split
from inference.adapters.lists import with_totals
from inference.adapters.worker_counts import state_of, worker_counts_of
from inference.admin.adapter_forms import NameForm, TrafficForm
from inference.admin.adapter_verbs import AdapterVerbs, percent, workers_text
from inference.models import Adapter, ServedModel
from tenants.verbs import verb

# Of an adapter's versions, those that its page shows; the list of versions has all.
_SHOWN = 100


class ServiceFilter(DropdownFilter):  # type: ignore[misc]
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("active", "in service"), ("archived", "deleted")]

    def queryset(self, request: HttpRequest, rows: QuerySet[Adapter]) -> QuerySet[Adapter]:
        wanted = self.value()
        return rows.filter(archived_at__isnull=wanted == "active") if wanted else rows


class BaseModelFilter(DropdownFilter):  # type: ignore[misc]
    title = parameter_name = "model"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in ServedModel.objects.values_list("name", flat=True)]

    def queryset(self, request: HttpRequest, rows: QuerySet[Any]) -> QuerySet[Any]:
        path = "model" if rows.model is Adapter else "adapter__model"
        return rows.filter(**{path: self.value()}) if self.value() else rows


@admin.register(Adapter)
class AdapterAdmin(AdapterVerbs):
    list_display = [
        "public_name",
        "tenant",
        "model_name",
        "condition",
        "answers",
        "version_count",
        "stored",
        "created_at",
    ]
    list_filter = [("tenant", AutocompleteSelectFilter), BaseModelFilter, ServiceFilter]
    search_fields = ["slug", "tenant__slug", "tenant__name", "id__startswith"]
    search_help_text = "Name, such as acme/support, or tenant"
    list_select_related = ["tenant"]
    ordering = ["tenant__slug", "slug"]
    fields = [
        "public_name",
        "tenant",
        "model_name",
        "condition",
        "answers",
        "stored",
        "created_at",
        "archived_at",
        "versions_table",
    ]
    readonly_fields = fields
    actions_detail: ClassVar = ["point_one", "delete_one"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Adapter]:
        adapters: QuerySet[Adapter] = super().get_queryset(request)
        return with_totals(adapters.select_related("tenant", "model"))

    def get_search_results(
        self, request: HttpRequest, rows: QuerySet[Adapter], term: str
    ) -> tuple[QuerySet[Adapter], bool]:
        """Find a public name as it stands in requests and records, too."""
        owner, slash, slug = term.strip().partition("/")
        if slash:
            return rows.filter(tenant__slug=owner, slug__startswith=slug.partition("@")[0]), False
        found: tuple[QuerySet[Adapter], bool] = super().get_search_results(request, rows, term)
        return found

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return what can be done with an adapter that is in service."""
        adapter = self.get_object(request, object_id)
        if adapter is None or adapter.archived_at is not None:
            return []
        actions: list[Any] = super().get_actions_detail(request, object_id)
        return actions

    # Columns ------------------------------------------------------------------------------------

    @admin.display(description="name", ordering="slug")
    def public_name(self, adapter: Adapter) -> str:
        return adapter.name

    @admin.display(description="model", ordering="model")
    def model_name(self, adapter: Adapter) -> str:
        return adapter.model_id

    @display(description="state", label={"in service": "success", "deleted": "default"})
    def condition(self, adapter: Adapter) -> str:
        return "in service" if adapter.archived_at is None else "deleted"

    @admin.display(description="answered by")
    def answers(self, adapter: Adapter) -> str:
        shares = [f"{share['version']} ({percent(share['permille'])})" for share in adapter.shares]
        return ", ".join(shares) or "no version"

    @admin.display(description="versions", ordering="version_count")
    def version_count(self, adapter: Any) -> int:
        return int(adapter.version_count)

    @admin.display(description="stored", ordering="stored_bytes")
    def stored(self, adapter: Any) -> str:
        return filesizeformat(adapter.stored_bytes)

    @admin.display(description="versions")
    def versions_table(self, adapter: Adapter) -> SafeString:
        """Show the newest versions, with who has them, which is asked once for all."""
        versions = adapter.versions.select_related("adapter__tenant").order_by("-number")
        shown = list(versions[:_SHOWN])
        held = worker_counts_of(adapter.model.pool_id, shown)
        rows = []
        for version in shown:
            holders = None if held is None else held[version.number]
            rows.append(
                {
                    "version": version,
                    "state": state_of(version, holders),
                    "workers": workers_text(holders),
                    "share": percent(adapter.permille_of(version.number)),
                    "stored": filesizeformat(version.stored_bytes),
                }
            )
        context = {"rows": rows, "left_out": versions.count() - len(shown)}
        return render_to_string("admin/inference/adapter_versions.html", context)

    # Actions ------------------------------------------------------------------------------------

    @action(description="Change traffic", url_path="point", permissions=["act"], icon="call_split")
    def point_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        adapter: Adapter = self.found(request, object_id)
        form = TrafficForm(request.POST if self.is_sure(request) else None, adapter=adapter)
        if form.is_valid():
            return self.do(
                request,
                adapter,
                lambda: set_traffic_split(adapter, form.shares),
                f"{adapter.name}: traffic changed.",
            )
        return self.ask_first(
            request,
            title=f"Change the traffic of {adapter.name}",
            text=verb("adapters split").ends,
            button="Change traffic",
            form=form,
        )

    @action(description="Delete", url_path="end", permissions=["act"], icon="delete_forever")
    def delete_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        adapter: Adapter = self.found(request, object_id)
        form = NameForm(request.POST if self.is_sure(request) else None, name=adapter.name)
        if form.is_valid():
            return self.do(
                request, adapter, lambda: delete_adapter(adapter), f"{adapter.name} was deleted."
            )
        return self.ask_first(
            request,
            title=f"Delete {adapter.name}",
            text=verb("adapters delete").ends,
            button="Delete",
            form=form,
            is_final=True,
        )
