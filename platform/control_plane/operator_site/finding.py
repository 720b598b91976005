"""/admin/find/?q=: all that has an id, an e-mail address or a name, in every list that the operator
may see."""

import re
import uuid
from dataclasses import dataclass
from typing import Any, Final, cast

from django.apps import apps
from django.contrib.admin import ModelAdmin
from django.contrib.admin.sites import AdminSite
from django.db.models import Model, QuerySet, UUIDField
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.http import urlencode
from django.utils.text import capfirst

from tenants.operator_admin import full_name, list_address, page_address

# Of each list; the list itself has the rest.
SHOWN: Final = 10
LONGEST: Final = 200
# A text is looked for in these, in this order; an id in every list.
BY_TEXT: Final = (
    "tenants.Tenant",
    "tenants.Project",
    "tenants.User",
    "tenants.Invitation",
    "tenants.ApiKey",
    "inference.ServedModel",
    "inference.Pool",
    "inference.Worker",
    "inference.Adapter",
    "billing.Invoice",
    "billing.Payment",
    "tenants.MailDomain",
    "tenants.Tier",
    "webhooks.Endpoint",
)
# An id as the API writes it: `chatcmpl-` before it, with dashes or without.
_ID: Final = re.compile(r"(?:[a-z]+-)?([0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12})")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one list has: its rows as a word and an address each, and whether there are more."""

    title: str
    address: str
    rows: tuple[tuple[str, str], ...]
    has_more: bool


def find_page(site: AdminSite, request: HttpRequest) -> HttpResponseBase:
    """Show all that is found; where it is one thing, go there."""
    asked = request.GET.get("q", "").replace("\0", "").strip()
    problem = f"Look for at most {LONGEST} characters." if len(asked) > LONGEST else ""
    found = [] if problem or not asked else find(site, request, asked)
    if len(found) == 1 and len(found[0].rows) == 1:
        return redirect(found[0].rows[0][1])
    context = {
        **site.each_context(request),
        "title": "Find",
        "asked": asked,
        "problem": problem,
        "found": found,
    }
    return TemplateResponse(request, "admin/find.html", context)


def find(site: AdminSite, request: HttpRequest, asked: str) -> list[Found]:
    """Return what lists have, those with the most exact answer first: an id is one of all."""
    if (match := _ID.fullmatch(asked.lower())) is not None:
        sought = uuid.UUID(match[1])
        pages = [page for page in site._registry.values() if _has_ids(page.model)]
        found = [
            _found(page, page.get_queryset(request).filter(pk=sought), str(sought))
            for page in pages
            if page.has_view_or_change_permission(request)
        ]
        return [each for each in found if each.rows]
    found = []
    for label in BY_TEXT:
        page = site._registry[apps.get_model(label)]
        if page.has_view_or_change_permission(request):
            rows, _ = page.get_search_results(request, page.get_queryset(request), asked)
            found.append(_found(page, rows, asked))
    return [each for each in found if each.rows]


def _has_ids(model: type[Model]) -> bool:
    return isinstance(model._meta.pk, UUIDField)


def _found(page: "ModelAdmin[Any]", rows: "QuerySet[Any]", asked: str) -> Found:
    some = list(rows[: SHOWN + 1])
    return Found(
        title=capfirst(cast(str, page.opts.verbose_name_plural)),
        address=f"{list_address(page.model)}?{urlencode({'q': asked})}",
        rows=tuple((full_name(each), page_address(each)) for each in some[:SHOWN]),
        has_more=len(some) > SHOWN,
    )
