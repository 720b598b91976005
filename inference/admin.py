"""Operators' pages for the catalogue, the fleet and the usage records."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline

from inference.models import (
    ServedModel,
    ServedModelTenant,
    UsageQuarantine,
    UsageRecord,
    Worker,
)
from tenants.operator_admin import OperatorAdmin, ReadOnlyAdmin


class ServedModelTenantInline(TabularInline):  # type: ignore[misc]
    model = ServedModelTenant
    extra = 0
    autocomplete_fields = ["tenant"]


@admin.register(ServedModel)
class ServedModelAdmin(OperatorAdmin):
    list_display = ["name", "pool", "context_tokens", "is_enabled", "visible_to"]
    list_filter = ["is_enabled", "pool"]
    search_fields = ["name", "pool__name"]
    readonly_fields = ["created_at"]
    inlines = [ServedModelTenantInline]

    def get_queryset(self, request: HttpRequest) -> QuerySet[ServedModel]:
        models: QuerySet[ServedModel] = super().get_queryset(request)
        return models.prefetch_related("tenants")

    @admin.display(description="visible to")
    def visible_to(self, model: ServedModel) -> str:
        return ", ".join(tenant.name for tenant in model.tenants.all()) or "everybody"


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = [
        "name",
        "pool",
        "model",
        "engine",
        "state",
        "live",
        "running",
        "slots",
        "host",
        "last_seen_at",
    ]
    list_filter = ["pool", "engine", "state"]
    search_fields = ["worker_id", "name", "host", "model"]

    @admin.display(boolean=True, description="live")
    def live(self, worker: Worker) -> bool:
        return worker.is_live()


@admin.register(UsageRecord)
class UsageRecordAdmin(ReadOnlyAdmin):
    list_display = [
        "request_id",
        "tenant",
        "model",
        "outcome",
        "prompt_tokens",
        "completion_tokens",
        "ttft_ms",
        "arrived_at",
    ]
    list_filter = ["outcome", "tenant", "model", "tier", "api", "stream"]
    search_fields = ["=request_id", "=api_key__public_id", "=worker_id"]
    list_select_related = ["tenant", "project__tenant", "api_key"]
    date_hierarchy = "arrived_at"


@admin.register(UsageQuarantine)
class UsageQuarantineAdmin(ReadOnlyAdmin):
    list_display = ["pool", "stream_id", "reason", "quarantined_at"]
    list_filter = ["pool"]
    search_fields = ["stream_id", "reason"]
    fields = ["pool", "stream_id", "reason", "quarantined_at", "entry_text"]

    @admin.display(description="entry")
    def entry_text(self, row: UsageQuarantine) -> str:
        return repr(bytes(row.entry))
