"""What a dashboard is, and its two views: the page, and the fragment with all its panels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.contrib.admin.sites import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_safe

from control_plane.live.panels import EVERY_MS, Panel, Reading, current


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A page of live panels. `name` stands in its address; `permission` is what an operator needs
    to see it, such as `inference.view_worker`; `icon` is one of Material Symbols; `legend` says
    what the figures are; an open page asks for them anew `every_ms`. The one that `is_index`
    stands at the site's own address."""

    name: str
    title: str
    icon: str
    permission: str
    panels: tuple[Panel, ...] = ()
    legend: str = ""
    summary: Callable[[Sequence[Reading]], str] | None = None
    is_index: bool = False
    every_ms: int = EVERY_MS

    @property
    def address(self) -> str:
        return reverse("admin:index" if self.is_index else f"admin:dashboard-{self.name}")

    @property
    def fragment_address(self) -> str:
        return reverse(f"admin:dashboard-{self.name}-panels")

    def is_open_to(self, request: HttpRequest) -> bool:
        return request.user.has_perm(self.permission)

    def urls(self, site: AdminSite) -> list[URLPattern]:
        """Return the addresses of the page and of its fragment, for the site's own."""
        page = path(
            f"dashboards/{self.name}/",
            site.admin_view(self.page_view(site)),
            name=f"dashboard-{self.name}",
        )
        fragment = path(
            f"dashboards/{self.name}/panels",
            self._fragment(site),
            name=f"dashboard-{self.name}-panels",
        )
        return [fragment] if self.is_index else [page, fragment]

    def page_view(self, site: AdminSite) -> Callable[[HttpRequest], HttpResponse]:
        @require_safe
        def page(request: HttpRequest) -> HttpResponse:
            self.check(request)
            context = {
                **site.each_context(request),
                **self.context(request),
                "title": self.title,
                "is_fullwidth": "1",
            }
            response = TemplateResponse(request, "admin/dashboards/page.html", context)
            response["Cache-Control"] = "no-store"
            return response

        return page

    def _fragment(self, site: AdminSite) -> Callable[[HttpRequest], HttpResponse]:
        """Return the view that an open page asks again and again: it opens no transaction, but for
        a panel that is read from PostgreSQL."""

        @require_safe
        def panels(request: HttpRequest) -> HttpResponse:
            self.check(request)
            response = render(request, "admin/dashboards/panels.html", self.context(request))
            response["Cache-Control"] = "no-store"
            return response

        def fragment(request: HttpRequest) -> HttpResponse:
            if site.has_permission(request):
                return panels(request)
            if "HX-Request" in request.headers:
                # The whole page has the way to sign in, which would only be put into it here.
                return HttpResponse(status=401, headers={"HX-Refresh": "true"})
            return redirect_to_login(self.address, reverse("admin:login"))

        return fragment

    def panels_of(self, request: HttpRequest) -> tuple[Panel, ...]:
        """Return what an address asks for."""
        return self.panels

    def check(self, request: HttpRequest) -> None:
        """Raise `PermissionDenied` for who may not see the page."""
        if not self.is_open_to(request):
            raise PermissionDenied

    def context(self, request: HttpRequest) -> dict[str, object]:
        """Return what the templates take."""
        shown = [
            (panel, current(panel))
            for panel in self.panels_of(request)
            if not panel.permission or request.user.has_perm(panel.permission)
        ]
        return {
            "dashboard": self,
            "panels": shown,
            "summary": self.summary([reading for _, reading in shown]) if self.summary else "",
            "fragment": self.fragment_address,
            "user": request.user,
        }
