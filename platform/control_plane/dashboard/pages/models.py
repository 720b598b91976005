"""/t/<tenant>/models: what the organisation can call, what it costs, and how it does today."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, ClassVar, Final

from django.http import HttpRequest, HttpResponse

from control_plane.curl import chat_command, completion_command, report_command
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.billing.prices import PriceRow, price_rows
from control_plane.live.dispatch_redis import dashboards_redis
from control_plane.live.panels import Panel, current
from gpu_workers.protocol.policy import Capability, ModelPolicy
from inference.histograms import Histogram
from inference.models import Adapter
from inference.models.catalog import models_visible_to
from inference.operations.fleet import read_fleet
from inference.usage.reports import Dimension, UsageQuery, aggregate, quantiles
from tenants.models import Tenant
from tenants.permissions import Permission

_WORDS: Final = {
    Capability.CHAT: "chat",
    Capability.COMPLETIONS: "completions",
    Capability.TOOLS: "tools",
    Capability.JSON_SCHEMA: "structured output",
    Capability.REASONING: "reasoning",
    Capability.VISION: "vision",
}
# Of requests that came to the service, these were not served.
_NOT_SERVED: Final = ("expired", "failed")


@dataclass(frozen=True, kw_only=True)
class Today:
    """What the organisation asked of a model today, without and with adapters. Latencies are in ms,
    by quantile, and None where nothing was answered."""

    requests: int
    served_percent: float | None
    ttft_ms: Mapping[str, float | None]
    inter_token_ms: Mapping[str, float | None]


_NOTHING: Final = Today(requests=0, served_percent=None, ttft_ms={}, inter_token_ms={})


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """A model that the organisation can call. `is_ready` is None where nobody knows."""

    model: ModelPolicy
    prices: PriceRow
    can: tuple[str, ...]
    is_ready: bool | None
    today: Today
    adapters: tuple[Adapter, ...]
    curl: str


class ModelsPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW}
    template_name = "dashboard/models/list.html"
    section = "models"

    def get(self, request: HttpRequest) -> HttpResponse:
        today = datetime.now(UTC).date()
        sees_usage = self.access.may(Permission.VIEW_USAGE)
        context = {
            "models": model_rows(self.tenant, today),
            "sees_usage": sees_usage,
            "sees_adapters": self.access.may(Permission.VIEW_ADAPTERS),
            "call": report_command(self.tenant.id, "models", {}),
        }
        return self.show(context)


def model_rows(tenant: Tenant, today: date) -> list[ModelRow]:
    """Return the models that the tenant can call, by name. In the tenant's scope."""
    ready = current(_READY)
    prices = {row.model: row for row in price_rows(tenant)}
    used = _used(today)
    adapters: dict[str, list[Adapter]] = {}
    for adapter in Adapter.objects.filter(archived_at=None).order_by("slug"):
        adapters.setdefault(adapter.model_id, []).append(adapter)
    return [
        ModelRow(
            model=model,
            prices=prices[model.name],
            can=tuple(word for each, word in _WORDS.items() if model.supports(each)),
            is_ready=None if ready.data is None or ready.problem else model.pool in ready.data,
            today=used.get(model.name, _NOTHING),
            adapters=tuple(adapters.get(model.name, ())),
            curl=_curl(model),
        )
        for model in sorted(models_visible_to(tenant.id), key=lambda each: each.name)
    ]


def _ready() -> frozenset[str]:
    with dashboards_redis() as redis:
        fleet = read_fleet(redis)
    return frozenset(pool.name for pool in fleet if any(each.is_ready for each in pool.workers))


# Which pools are ready is nobody's secret: all tenants share one reading.
_READY: Final = Panel(name="ready-pools", title="Workers", template="", read=_ready)


def _used(today: date) -> dict[str, Today]:
    query = UsageQuery(first=today, last=today, group_by=(Dimension.MODEL,))
    return {row["model"]: _today(row) for row in aggregate(query, with_latencies=True)}


def _today(row: Mapping[str, Any]) -> Today:
    asked = int(row["requests"])
    missed = sum(int(row[outcome]) for outcome in _NOT_SERVED)
    return Today(
        requests=asked,
        served_percent=100.0 * (asked - missed) / asked if asked else None,
        ttft_ms=quantiles(row["ttft_histogram"] or Histogram()),
        inter_token_ms=quantiles(row["itl_histogram"] or Histogram()),
    )


def _curl(model: ModelPolicy) -> str:
    command = chat_command if model.supports(Capability.CHAT) else completion_command
    return command(model.name)
