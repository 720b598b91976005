"""What all pages of a tenant have in common: who is signed in, the tenant's walls around all that a
page does, and the shell."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

from allauth.account.adapter import get_adapter
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ObjectDoesNotExist
from django.db import DataError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.views import View

from control_plane.dashboard.navigation import navigation
from control_plane.web.call_limits import seconds_to_wait
from control_plane.web.pages import private, signed_in
from tenants.access.entry_policy import RECENT_PROOF, EntryRefused
from tenants.access.impersonation import impersonated_access, impersonation_of
from tenants.access.member_access import MemberAccess, member_access
from tenants.access.second_factor import has_second_factor
from tenants.access.session_proofs import proofs_of
from tenants.errors import NotPermitted
from tenants.exports import RETRY_SECONDS, TooManyExports
from tenants.isolation.audit_actor import address_of
from tenants.models import Tenant, User
from tenants.permissions import Permission, roles_with


@dataclass(frozen=True)
class UnscopedWork:
    """What a page has to do yet once its tenant's scope is closed, as it may take long. `work`
    returns the answer, by another visit of the page if it likes."""

    work: Callable[[], HttpResponseBase]


class TenantPage(View):
    """A page about one tenant: `get` and `post` run inside that tenant's walls, in one transaction.

    `permissions` says what each method takes, as a viewset of the API does for its actions;
    `section` is the page of the rail that it belongs to; `while_suspended` is of a change that a
    suspended tenant takes too. What takes long is no part of that transaction: `get` and `post`
    return it as `UnscopedWork`.
    """

    http_method_names = ["get", "head", "post"]
    permissions: ClassVar[Mapping[str, Permission]] = {}
    template_name: ClassVar[str]
    section: ClassVar[str]
    while_suspended: ClassVar[bool] = False
    # Whether a form asks others, in no scope, before it is looked at.
    asks_first: ClassVar[bool] = False

    access: MemberAccess
    # Visits the page once more, in a scope of its own.
    again: Callable[[], HttpResponseBase]
    _has_asked = False

    @property
    def tenant(self) -> Tenant:
        return self.access.tenant

    def dispatch(self, request: HttpRequest, *args: Any, **ids: Any) -> HttpResponseBase:
        method = (request.method or "").lower()
        if method not in self.http_method_names or not hasattr(self, method):
            return self.http_method_not_allowed(request)
        user = signed_in(request)
        if user is None:
            return sign_in_first(request)
        most = settings.PENSTOCK_PAGES_PER_MINUTE
        wait_seconds = seconds_to_wait(request, "pages", f"user:{user.pk}", most)
        if wait_seconds is not None:
            return _too_many(f"At most {most:,} pages a minute; wait a moment.", wait_seconds)
        tenant_id: uuid.UUID = ids.pop("tenant_id")
        self.again = partial(self._visit, request, user, tenant_id, *args, **ids)
        try:
            return self.again()
        except EntryRefused as refusal:
            return ask_for_proof(request, user, refusal)
        except TooManyExports as refusal:
            return _too_many(refusal.message, RETRY_SECONDS)
        except (ObjectDoesNotExist, DataError):
            raise Http404 from None

    def ask_first(self, request: HttpRequest, **ids: Any) -> None:
        """Ask what others take their time to answer, the DNS for one: whoever sent the form may
        send it. What speaks against it is for `post` to say."""

    def _visit(
        self, request: HttpRequest, user: User, tenant_id: uuid.UUID, *args: Any, **ids: Any
    ) -> HttpResponseBase:
        with entered(request, user, tenant_id, address_of(request)) as self.access:
            answer = self._within(request, *args, **ids)
        return answer.work() if isinstance(answer, UnscopedWork) else answer

    def _within(
        self, request: HttpRequest, *args: Any, **ids: Any
    ) -> HttpResponseBase | UnscopedWork:
        is_change = request.method == "POST"
        permission = self.permissions["POST" if is_change else "GET"]
        try:
            self.access.check(permission, is_change=is_change)
        except EntryRefused:
            raise
        except NotPermitted as refusal:
            if refusal.code == "tenant_suspended" and self.while_suspended:
                return super().dispatch(request, *args, **ids)
            return self._refused(permission, refusal)
        if is_change and self.asks_first and not self._has_asked:
            return UnscopedWork(lambda: self._asked(request, **ids))
        return super().dispatch(request, *args, **ids)

    def _asked(self, request: HttpRequest, **ids: Any) -> HttpResponseBase:
        self.ask_first(request, **ids)
        self._has_asked = True
        return self.again()

    def show(
        self, context: Mapping[str, Any], *, fragment: str = "", status: int = 200
    ) -> HttpResponse:
        """Render the page, or where htmx asks for it that fragment of it, while the tenant's scope
        is open."""
        name = self.template_name
        if fragment and wants_fragment(self.request):
            name = f"{name}#{fragment}"
        return self._rendered(name, context, status=status)

    def write_access(self, permission: Permission) -> dict[str, Any]:
        """Return, for a template, whether the reader may change what takes this permission, and the
        roles that may."""
        return {
            "may_write": self.access.may_change(permission),
            "writers": roles_with(permission),
        }

    def go_to(self, address: str) -> HttpResponse:
        """Go on to another page once a form was taken."""
        if self.request.headers.get("HX-Request"):
            return HttpResponse(status=204, headers={"HX-Redirect": address})
        return HttpResponseRedirect(address)

    def _refused(self, permission: Permission, refusal: NotPermitted) -> HttpResponse:
        context = {"refusal": refusal, "able": roles_with(permission)}
        return self._rendered("dashboard/refused.html", context, status=403)

    def _rendered(self, name: str, context: Mapping[str, Any], *, status: int) -> HttpResponse:
        # A fragment has no rail.
        rail = SimpleLazyObject(lambda: navigation(self.access, self.section))
        shell = {"access": self.access, "navigation": rail}
        return private(render(self.request, name, shell | dict(context), status=status))


def entered(
    request: HttpRequest, user: User, tenant_id: uuid.UUID, address: str | None
) -> AbstractContextManager[MemberAccess]:
    """Open the tenant for an operator who acts as its member, or else for a member."""
    acting = impersonation_of(request.session, user, address)
    if acting is not None and acting.tenant_id == tenant_id:
        return impersonated_access(user, acting, address=address)
    return member_access(user, tenant_id, proofs=proofs_of(request.session), address=address)


def sign_in_first(request: HttpRequest) -> HttpResponse:
    """Send whoever is not signed in to do so, and back afterwards."""
    if request.headers.get("HX-Request"):
        # A fragment is no place for it: the page as a whole goes there.
        back = _page_address(request)
        return HttpResponse(status=401, headers={"HX-Redirect": redirect_to_login(back).url})
    return redirect_to_login(request.get_full_path())


def ask_for_proof(request: HttpRequest, user: User, refusal: EntryRefused) -> HttpResponse:
    """Say what the session lacks, and lead there."""
    if refusal.code == RECENT_PROOF:
        return _prove_again(request, user, refusal.tenant)
    here = _page_address(request)
    if request.headers.get("HX-Request"):
        return HttpResponse(status=403, headers={"HX-Redirect": here})
    back = request.get_full_path() if request.method in ("GET", "HEAD") else here
    context = {
        "refusal": refusal,
        "user": user,
        "back": back,
        "has_second_factor": has_second_factor(user),
        "sign_in_again": redirect_to_login(back).url,
    }
    return private(render(request, "dashboard/entry_refused.html", context, status=403))


def _prove_again(request: HttpRequest, user: User, tenant: Tenant) -> HttpResponse:
    """Have somebody give again what they have signed in with. What they asked for is done then,
    but for what htmx asked for, or a provider's word is needed for, which leads back to the page.
    Raises `ReauthenticationRequired`, for allauth to take the request up again."""
    is_htmx = "HX-Request" in request.headers
    address = reverse("sign-on", args=[tenant.pk])
    if proofs_of(request.session).is_own:
        methods = get_adapter().get_reauthentication_methods(user)
        if not is_htmx or not methods:
            raise ReauthenticationRequired
        address = methods[0]["url"]
    back = _page_address(request) if is_htmx else request.path
    address = f"{address}?{urlencode({REDIRECT_FIELD_NAME: back})}"
    if is_htmx:
        return HttpResponse(status=403, headers={"HX-Redirect": address})
    return HttpResponseRedirect(address)


def _too_many(message: str, retry_seconds: int) -> HttpResponse:
    wait, plain = {"Retry-After": str(retry_seconds)}, "text/plain; charset=utf-8"
    return private(HttpResponse(message, plain, 429, headers=wait))


def _page_address(request: HttpRequest) -> str:
    """Return the path of the page that a fragment or form belongs to."""
    here = urlsplit(request.headers.get("HX-Current-URL", "/t/"))
    return here._replace(scheme="", netloc="").geturl()


def wants_fragment(request: HttpRequest) -> bool:
    """Return whether htmx asks for a part of the page; for one in the history it wants all."""
    asked = request.headers
    return "HX-Request" in asked and "HX-History-Restore-Request" not in asked
