"""The model catalogue, usage records and what went wrong with them."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from redis.exceptions import RedisError
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import (
    AutocompleteSelectFilter,
    ChoicesDropdownFilter,
    DropdownFilter,
    RangeDateTimeFilter,
    RelatedDropdownFilter,
)
from unfold.decorators import action, display

from inference import tasks
from inference.models import (
    DeadLetter,
    Pool,
    PoolTenant,
    ServedModel,
    ServedModelTenant,
    UsageQuarantine,
    UsageRecord,
    WastedAttempt,
)
from inference.models.catalog import CAPABILITY_CHOICES
from inference.operations import dead_letters
from inference.operations.pool_identity import pin
from inference.usage.collector import dispatch_redis
from tenants.models import Tier
from tenants.money import dollars
from tenants.operator_admin import LogAdmin, OperatorAdmin, ReadOnlyAdmin
from tenants.operator_forms import CheckboxesField
from tenants.verbs import verb

_NAMED = 5  # tenants in a cell of a list


class ServedModelTenantInline(TabularInline):  # type: ignore[misc]
    model = ServedModelTenant
    extra = 0
    per_page = 20
    ordering = ["tenant__name"]
    autocomplete_fields = ["tenant"]


class PoolTenantInline(TabularInline):  # type: ignore[misc]
    model = PoolTenant
    extra = 0
    per_page = 20
    ordering = ["tenant__name"]
    autocomplete_fields = ["tenant"]


def _names(tenants: list[Any]) -> str:
    if len(tenants) > _NAMED:
        return f"{len(tenants)} tenants"
    return ", ".join(tenant.name for tenant in tenants) or "all tenants"


@admin.register(Pool)
class PoolAdmin(OperatorAdmin):
    list_display = ["name", "description", "served_models", "serves", "dedicated_to"]
    search_fields = ["name", "description"]
    inlines = [PoolTenantInline]
    actions_detail: ClassVar = ["unpin"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pool]:
        pools: QuerySet[Pool] = super().get_queryset(request)
        return pools.prefetch_related("models", "tenants")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        # The name is the key: another name is another pool.
        return ["name", "serves"] if obj else ["serves"]

    @admin.display(description="engine and model digest")
    def serves(self, pool: Pool) -> str:
        return f"{pool.engine} {pool.model_digest}".strip() or "those of its next worker"

    def has_unpin_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("inference.change_pool")

    @action(
        description="Serve another model", url_path="unpin", permissions=["unpin"], icon="lock_open"
    )
    def unpin(self, request: HttpRequest, object_id: str) -> HttpResponse:
        pool = get_object_or_404(Pool, pk=unquote(object_id))
        if self.is_sure(request):
            try:
                with dispatch_redis() as redis:
                    pin(redis, pool.name, engine="", digest="")
            except RedisError:
                messages.error(request, "The dispatch Redis is not reachable; try again later.")
            else:
                messages.success(request, f"The next worker of {pool.name} decides what it serves.")
            return self.back_to(pool)
        return self.ask_first(
            request,
            title=f"Serve another model in {pool.name}",
            text=f"The pool serves {self.serves(pool)}, and refuses workers that bring anything "
            f"else. {verb('models pin').ends}",
            button="Let the next worker decide",
        )

    @admin.display(description="models")
    def served_models(self, pool: Pool) -> str:
        return ", ".join(model.name for model in pool.models.all()) or "none"

    @admin.display(description="dedicated to")
    def dedicated_to(self, pool: Pool) -> str:
        return _names(list(pool.tenants.all()))


class ServedModelForm(forms.ModelForm):  # type: ignore[type-arg]
    capabilities = CheckboxesField(choices=CAPABILITY_CHOICES)

    class Meta:
        model = ServedModel
        fields = ("capabilities",)


@admin.register(ServedModel)
class ServedModelAdmin(OperatorAdmin):
    form = ServedModelForm
    list_display = [
        "name",
        "pool",
        "context_tokens",
        "capability_names",
        "is_enabled",
        "visible_to",
    ]
    list_filter = ["is_enabled", ("pool", RelatedDropdownFilter)]
    search_fields = ["name", "pool__name"]
    list_select_related = ["pool"]
    autocomplete_fields = ["pool"]
    readonly_fields = ["created_at"]
    inlines = [ServedModelTenantInline]
    fieldsets = [
        (None, {"fields": ["name", "pool", "is_enabled"]}),
        ("Details", {"fields": ["context_tokens", "capabilities", "owned_by", "created_at"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[ServedModel]:
        models: QuerySet[ServedModel] = super().get_queryset(request)
        return models.prefetch_related("tenants")

    @admin.display(description="capabilities")
    def capability_names(self, model: ServedModel) -> str:
        return ", ".join(model.capabilities)

    @admin.display(description="visible to")
    def visible_to(self, model: ServedModel) -> str:
        return _names(list(model.tenants.all()))


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    """A request that every worker failed on, without its prompt: the table has none."""

    list_display = [
        "request_id",
        "pool",
        "model",
        "attempts",
        "died_at",
        "is_kept",
        "retry_outcome",
    ]
    list_filter = ["pool", "is_kept"]
    search_fields = ["request_id__exact", "model", "last_worker_id"]
    search_help_text = "Exact request id, model or worker id"
    actions_detail: ClassVar = ["retry_one", "discard_one"]

    def has_decide_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("inference.change_deadletter")

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        if DeadLetter.objects.filter(pk=object_id, is_kept=True).exists():
            actions: list[Any] = super().get_actions_detail(request, object_id)
            return actions
        return []

    @action(description="Retry", url_path="retry", permissions=["decide"], icon="replay")
    def retry_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        letter = get_object_or_404(DeadLetter, pk=object_id)
        if self.is_sure(request):
            tasks.retry_dead_letter.delay(letter.request_id.hex)
            self.log_change(request, letter, "Retried.")
            messages.success(request, "Retry queued. Its outcome will be shown on this page.")
            return self.back_to(letter)
        return self.ask_first(
            request,
            title=f"Retry {letter}",
            text=verb("dead-letters retry").ends,
            button="Retry",
        )

    @action(description="Discard", url_path="discard", permissions=["decide"], icon="delete")
    def discard_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        letter = get_object_or_404(DeadLetter, pk=object_id)
        if self.is_sure(request):
            with dispatch_redis() as redis:
                kept = dead_letters.letter_of(redis, letter.request_id.hex)
                if kept is not None:
                    dead_letters.discard(redis, kept)
            DeadLetter.objects.filter(pk=letter.pk).update(is_kept=False)
            self.log_change(request, letter, "Discarded.")
            messages.success(request, "Request and prompt deleted.")
            return self.back_to(letter)
        return self.ask_first(
            request,
            title=f"Discard {letter}",
            text=verb("dead-letters discard").ends,
            button="Discard",
            is_final=True,
        )


class _NameFilter(DropdownFilter):  # type: ignore[misc]
    """Offer the names of something that has a table of its own: asking millions of records for
    theirs takes seconds."""

    named: ClassVar[type[ServedModel | Tier]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in self.named.objects.values_list("name", flat=True)]

    def queryset(self, request: HttpRequest, records: QuerySet[UsageRecord]) -> Any:
        return records.filter(**{self.parameter_name: self.value()}) if self.value() else records


class ModelFilter(_NameFilter):
    title = parameter_name = "model"
    named = ServedModel


class TierFilter(_NameFilter):
    title = parameter_name = "tier"
    named = Tier


@admin.register(UsageRecord)
class UsageRecordAdmin(LogAdmin):
    list_display = [
        "request_id",
        "tenant",
        "model",
        "end",
        "prompt_tokens",
        "completion_tokens",
        "cost",
        "ttft_ms",
        "arrived_at",
    ]
    list_filter = [
        ("tenant", AutocompleteSelectFilter),
        ("outcome", ChoicesDropdownFilter),
        ("api", ChoicesDropdownFilter),
        ModelFilter,
        TierFilter,
        ("arrived_at", RangeDateTimeFilter),
    ]
    search_fields = ["request_id__exact", "api_key__public_id__exact", "worker_id__exact"]
    search_help_text = "Exact request id, public key id or worker id"
    list_select_related = ["tenant"]

    @display(
        description="outcome",
        ordering="outcome",
        label={"completed": "success", "failed": "danger", "expired": "warning"},
    )
    def end(self, record: UsageRecord) -> str:
        return record.outcome

    @display(description="cost", ordering="cost_nanos")
    def cost(self, record: UsageRecord) -> str:
        return dollars(record.cost_nanos)


@admin.register(WastedAttempt)
class WastedAttemptAdmin(LogAdmin):
    list_display = [
        "request_id",
        "attempt",
        "tenant",
        "model",
        "worker_id",
        "completion_tokens",
        "reason",
        "ended_at",
    ]
    list_filter = [
        ("tenant", AutocompleteSelectFilter),
        ModelFilter,
        ("ended_at", RangeDateTimeFilter),
    ]
    search_fields = ["request_id__exact", "worker_id__exact"]
    search_help_text = "Exact request id or worker id"
    list_select_related = ["tenant"]


@admin.register(UsageQuarantine)
class UsageQuarantineAdmin(ReadOnlyAdmin):
    list_display = ["pool", "stream_id", "cause", "reason", "quarantined_at"]
    list_filter = ["cause", "pool"]
    search_fields = ["stream_id", "reason"]
    fields = ["pool", "stream_id", "cause", "reason", "quarantined_at", "entry_text"]

    @admin.display(description="entry")
    def entry_text(self, row: UsageQuarantine) -> str:
        return repr(bytes(row.entry))
