"""Limits of a tenant and what is used of each now; those of projects and keys are made here, and so
are budgets, which are limits of money, and when a low balance is told."""

import uuid
from typing import Any, ClassVar, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.keys import id_in, projects_to_choose
from control_plane.dashboard.pages.limit_forms import (
    BalanceAlertForm,
    LimitFilters,
    LimitForm,
    NewLimitForm,
    place_initial,
)
from control_plane.records.limit_rows import NAMES, LimitRow, rows_of, rows_of_tier
from gpu_workers.protocol.policy import LimitName
from tenants.access.key_lists import KeyState, list_api_keys
from tenants.access.quotas import (
    add_quota,
    change_quota,
    list_quotas,
    quotas_of_whole,
    remove_quota,
)
from tenants.alerts.balances import set_threshold, threshold_of
from tenants.alerts.quotas import latest_alerts
from tenants.billing.ledger.balances import balance_of
from tenants.models import ApiKey, Quota
from tenants.models.tenant import BillingMode
from tenants.pagination import Page
from tenants.permissions import Permission

_ALERTS: Final = 5
# What a choice can show; for another key its own page leads here.
_MOST_KEYS: Final = 200


class LimitsPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW}
    template_name = "dashboard/limits/list.html"
    section = "limits"

    def get(self, request: HttpRequest) -> HttpResponse:
        filters = LimitFilters(request.GET, projects=projects_to_choose(request.GET.get("project")))
        chosen = filters.chosen()
        page = page_of(
            request,
            lambda cursor: list_quotas(
                limit=ROWS,
                cursor=cursor,
                limits=filters.limits(),
                project_id=id_in(chosen.get("project")),
            ),
        )
        context = {
            "page": Page[LimitRow](
                rows=rows_of(self.tenant, page.rows), next_cursor=page.next_cursor
            ),
            "filters": filters,
            "is_filtered": bool(chosen),
            "tier_rows": rows_of_tier(self.tenant),
            "whole_rows": rows_of(self.tenant, quotas_of_whole(self.tenant)),
            "alerts": latest_alerts(_ALERTS),
            "balance": self._balance(),
            **self.write_access(Permission.WRITE_QUOTAS),
        }
        return self.show(context, fragment="list")

    def _balance(self) -> dict[str, Any] | None:
        """Return a prepaid tenant's credit and at which it is told, to those who may know."""
        is_prepaid = self.tenant.billing_mode == BillingMode.PREPAID
        if not is_prepaid or not self.access.may(Permission.VIEW_BALANCE):
            return None
        return {
            "nanos": balance_of(self.tenant.id).credit_nanos,
            "threshold": threshold_of(self.tenant).threshold_nanos,
            **self.write_access(Permission.WRITE_WEBHOOKS),
        }


class NewLimitPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.WRITE_QUOTAS, "POST": Permission.WRITE_QUOTAS}
    template_name = "dashboard/limits/new.html"
    section = "limits"
    # Of money alone.
    is_budget: bool = False

    def get(self, request: HttpRequest) -> HttpResponse:
        place = place_initial(id_in(request.GET.get("project")), id_in(request.GET.get("key")))
        return self._show(self._form(initial={"place": place}))

    def post(self, request: HttpRequest) -> HttpResponse:
        form, quota = self._form(request.POST), None
        if form.is_valid():
            quota = form.perform(lambda: add_quota(self.tenant, **form.values()))
        if quota is None:
            return self._show(form, status=422)
        messages.success(request, f"{NAMES[LimitName(quota.limit)]} is limited now.")
        return self.go_to(reverse("dashboard:limits", args=[self.tenant.id]))

    def _show(self, form: NewLimitForm, status: int = 200) -> HttpResponse:
        context = {
            "form": form,
            "is_budget": self.is_budget,
            **self.write_access(Permission.WRITE_QUOTAS),
        }
        return self.show(context, fragment="form", status=status)

    def _form(self, *args: Any, **more: Any) -> NewLimitForm:
        kind, _, posted = self.request.POST.get("place", "").partition(":")
        project = posted if kind == "project" else self.request.GET.get("project")
        key = posted if kind == "key" else self.request.GET.get("key")
        return NewLimitForm(
            *args,
            projects=projects_to_choose(project),
            keys=_keys_to_choose(key),
            is_budget=self.is_budget,
            **more,
        )


class LimitPage(TenantPage):
    """One limit that members may change: all but what the operator set for the whole
    organisation."""

    permissions: ClassVar = {"GET": Permission.WRITE_QUOTAS, "POST": Permission.WRITE_QUOTAS}
    template_name = "dashboard/limits/one.html"
    section = "limits"

    def get(self, request: HttpRequest, quota_id: uuid.UUID) -> HttpResponse:
        quota = _quota(quota_id)
        return self.show(self._context(quota, LimitForm(quota=quota)))

    def post(self, request: HttpRequest, quota_id: uuid.UUID) -> HttpResponse:
        stored, quota = _quota(quota_id), _quota(quota_id)
        form = LimitForm(request.POST, quota=stored)
        changed = None
        if form.is_valid():
            changed = form.perform(lambda: change_quota(quota, **form.values()))
        if changed is None:
            return self.show(self._context(stored, form), fragment="form", status=422)
        messages.success(request, f"{NAMES[LimitName(quota.limit)]} was saved.")
        return self.go_to(reverse("dashboard:limits", args=[self.tenant.id]))

    def _context(self, quota: Quota, form: LimitForm) -> dict[str, Any]:
        row = rows_of(self.tenant, [quota])[0]
        return {
            "row": row,
            "form": form,
            "lead": f"Of {row.place}.",
            **self.write_access(Permission.WRITE_QUOTAS),
        }


class RemoveLimitPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.WRITE_QUOTAS, "POST": Permission.WRITE_QUOTAS}
    template_name = "dashboard/limits/remove.html"
    section = "limits"

    def get(self, request: HttpRequest, quota_id: uuid.UUID) -> HttpResponse:
        return self.show({"row": rows_of(self.tenant, [_quota(quota_id)])[0]})

    def post(self, request: HttpRequest, quota_id: uuid.UUID) -> HttpResponse:
        quota = _quota(quota_id)
        name = NAMES[LimitName(quota.limit)]
        remove_quota(quota)
        messages.success(request, f"{name} is no longer limited there.")
        return self.go_to(reverse("dashboard:limits", args=[self.tenant.id]))


class BalanceAlertPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_BALANCE, "POST": Permission.WRITE_WEBHOOKS}
    template_name = "dashboard/limits/balance_alert.html"
    section = "limits"

    def get(self, request: HttpRequest) -> HttpResponse:
        threshold = threshold_of(self.tenant).threshold_nanos
        return self._show(BalanceAlertForm(initial={"threshold_nanos": threshold}))

    def post(self, request: HttpRequest) -> HttpResponse:
        form, alert = BalanceAlertForm(request.POST), None
        if form.is_valid():
            nanos = form.cleaned_data["threshold_nanos"]
            alert = form.perform(lambda: set_threshold(self.tenant, nanos))
        if alert is None:
            return self._show(form, status=422)
        messages.success(request, "The balance alert was saved.")
        return self.go_to(reverse("dashboard:limits", args=[self.tenant.id]))

    def _show(self, form: BalanceAlertForm, status: int = 200) -> HttpResponse:
        context = {
            "form": form,
            "threshold": threshold_of(self.tenant).threshold_nanos,
            "is_prepaid": self.tenant.billing_mode == BillingMode.PREPAID,
            **self.write_access(Permission.WRITE_WEBHOOKS),
        }
        return self.show(context, fragment="form", status=status)


def _quota(quota_id: uuid.UUID) -> Quota:
    """Return one of the open scope's quotas that is its members'. Raises `Quota.DoesNotExist`."""
    rows = Quota.objects.exclude(project=None, api_key=None, is_own=False)
    return rows.select_related("project", "api_key").get(id=quota_id)


def _keys_to_choose(asked: str | None) -> list[tuple[str, str]]:
    """Return active keys to choose from, and with them the one that an address or a form names."""
    keys = list_api_keys(limit=_MOST_KEYS, state=KeyState.ACTIVE).rows
    asked_id = id_in(asked)
    if asked_id is not None and asked_id not in {key.id for key in keys}:
        keys += ApiKey.objects.filter(id=asked_id)
    return [(str(key.id), key.title) for key in keys]
