"""The operators' admin as a site: each page is one transaction across all tenants, and its changes
are recorded in the audit log under the operator's name."""

import uuid
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from django.contrib.admin.views.autocomplete import AutocompleteJsonView
from django.db.models import Model
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_safe
from unfold.sites import UnfoldAdminSite

from control_plane.operator_site.dashboards.registry import DASHBOARDS
from control_plane.operator_site.finding import find_page
from control_plane.operator_site.rerating import rerate_page
from control_plane.operator_site.sign_in_form import OperatorSignInForm
from tenants.access.entry_policy import is_operators
from tenants.access.session_proofs import proofs_of
from tenants.isolation.audit_actor import address_of, audit_actor
from tenants.isolation.scoping import operator_scope
from tenants.models import User
from tenants.operator_admin import full_name

View = Callable[..., HttpResponseBase]


class FullNames(AutocompleteJsonView):
    """Autocomplete whose choices name their tenant."""

    def serialize_result(self, obj: Model, to_field_name: str) -> dict[str, str]:
        return super().serialize_result(obj, to_field_name) | {"text": full_name(obj)}


class OperatorSite(UnfoldAdminSite):  # type: ignore[misc]
    index_title = "All pages"
    login_form = OperatorSignInForm

    def has_permission(self, request: HttpRequest) -> bool:
        user = request.user
        return isinstance(user, User) and is_operators(user, proofs_of(request.session))

    def admin_view(self, view: View, cacheable: bool = False) -> View:
        """Wrap a view so that it runs, and its template is rendered, in an operator's scope."""

        @wraps(view)
        def in_operator_scope(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            operator = cast(User, request.user).as_actor()
            scope = operator_scope(f"admin {request.path}")
            with audit_actor(operator, address_of(request)), scope:
                response = view(request, *args, **kwargs)
                # Django would render it later, when the scope has ended.
                if isinstance(response, TemplateResponse):
                    response.render()
            return response

        # Outermost: whoever is no operator is sent to sign in before a scope opens.
        guarded: View = super().admin_view(in_operator_scope, cacheable)
        return guarded

    def extra_urls(self) -> list[URLPattern]:
        """Return the addresses of the dashboards and of the list of all pages, which Unfold puts
        before the models'."""
        return [
            path("pages/", self.admin_view(self.all_pages), name="all-pages"),
            path("find/", self.admin_view(require_safe(self.find)), name="find"),
            path("rerate/<uuid:tenant_id>/", self.admin_view(self.rerate), name="rerate"),
            *(address for dashboard in DASHBOARDS for address in dashboard.urls(self)),
        ]

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponseBase:
        """Show the first dashboard. Who may not see it gets the first of those that are for them,
        and all pages where none is."""
        shown = next((each for each in DASHBOARDS if each.is_open_to(request)), None)
        if shown is None:
            return redirect("admin:all-pages")
        return shown.page_view(self)(request) if shown.is_index else redirect(shown.address)

    def all_pages(self, request: HttpRequest) -> HttpResponseBase:
        """Show Django's own index: every list, and what the operator did last."""
        page: TemplateResponse = super().index(request)
        return page

    def find(self, request: HttpRequest) -> HttpResponseBase:
        return find_page(self, request)

    def rerate(self, request: HttpRequest, tenant_id: uuid.UUID) -> HttpResponseBase:
        return rerate_page(self, request, tenant_id)

    def autocomplete_view(self, request: HttpRequest) -> HttpResponseBase:
        return FullNames.as_view(admin_site=self)(request)
