"""Adapters of a tenant: the list, one with its versions, one of these."""

import uuid
from typing import Any, ClassVar

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.curl import chat_command
from control_plane.dashboard.forms import FilterForm
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.adapters.shown import (
    adapter_row,
    shares_of,
    version_rows,
)
from control_plane.dashboard.storage_rows import rows_of_storage, storage_price_text
from inference.adapters.intake import waits_for_worker
from inference.adapters.lists import (
    find_adapter,
    find_version,
    list_adapters,
    list_versions,
    ready_versions,
)
from inference.adapters.pins import honoured_pins
from inference.models.adapter import Adapter
from tenants.permissions import Permission


class AdapterFilters(FilterForm):
    state = forms.ChoiceField(choices=[("", "In service"), ("archived", "Archived")])


class AdaptersPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_ADAPTERS}
    template_name = "dashboard/adapters/list.html"
    section = "adapters"

    def get(self, request: HttpRequest) -> HttpResponse:
        filters = AdapterFilters(request.GET)
        is_archived = filters.chosen().get("state") == "archived"
        page = page_of(
            request,
            lambda cursor: list_adapters(is_archived=is_archived, limit=ROWS, cursor=cursor),
        )
        context = {
            "filters": filters,
            "is_filtered": is_archived,
            "has_any": bool(page.rows) or Adapter.objects.exists(),
            "page": page,
            "rows": [adapter_row(adapter) for adapter in page.rows],
            "tier": self.tenant.tier,
            "storage": rows_of_storage(self.tenant),
            "storage_price": storage_price_text(),
        }
        return self.show(context | self.write_access(Permission.WRITE_ADAPTERS), fragment="list")


class AdapterPage(TenantPage):
    """An adapter with its versions. While one is looked at the list of them asks again."""

    permissions: ClassVar = {"GET": Permission.VIEW_ADAPTERS}
    template_name = "dashboard/adapters/one.html"
    section = "adapters"

    def get(self, request: HttpRequest, adapter_id: uuid.UUID) -> HttpResponse:
        adapter = find_adapter(adapter_id)
        page = page_of(request, lambda cursor: list_versions(adapter, limit=ROWS, cursor=cursor))
        context = {
            "adapter": adapter,
            "shares": shares_of(adapter),
            "page": page,
            "rows": version_rows(adapter, page.rows),
            "is_in_progress": any(version.is_in_progress for version in page.rows),
            "before": _before(adapter),
            "is_pin_honoured": adapter.pk in honoured_pins(self.tenant),
            "may_pin": self.tenant.tier.max_pinned_adapters > 0,
            "curl": chat_command(adapter.name),
        }
        return self.show(
            context | self.write_access(Permission.WRITE_ADAPTERS), fragment="versions"
        )


class AdapterVersionPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_ADAPTERS}
    template_name = "dashboard/adapters/version.html"
    section = "adapters"

    def get(
        self, request: HttpRequest, adapter_id: uuid.UUID, version_id: uuid.UUID
    ) -> HttpResponse:
        version = find_version(adapter_id, version_id)
        (row,) = version_rows(version.adapter, [version])
        context = {
            "adapter": version.adapter,
            "version": version,
            "row": row,
            "waits_for_worker": waits_for_worker(version),
            "curl": chat_command(str(version)),
        }
        return self.show(context | self.write_access(Permission.WRITE_ADAPTERS), fragment="state")


class ChangingPage(TenantPage):
    """Base of the pages that make or change an adapter."""

    permissions: ClassVar = {"GET": Permission.WRITE_ADAPTERS, "POST": Permission.WRITE_ADAPTERS}
    section = "adapters"

    def list_address(self) -> str:
        return reverse("dashboard:adapters", args=[self.tenant.id])

    def address_of(self, adapter: Adapter) -> str:
        return reverse("dashboard:adapter", args=[self.tenant.id, adapter.id])


def _before(adapter: Adapter) -> Any:
    """Return the version that a roll-back would go to: the newest before the one that answers, of
    those that are ready; with a canary it is the one beside it."""
    if adapter.main is None:
        return None
    if adapter.canary is not None:
        return ready_versions(adapter).filter(number=adapter.main).first()
    return ready_versions(adapter).filter(number__lt=adapter.main).first()
