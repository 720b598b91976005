"""What all calls of the management API have in common: JSON in and out, errors in one envelope, and
the walls of the tenant in the path around all that a call does."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar

from django.http import HttpRequest, HttpResponse
from rest_framework.response import Response
from rest_framework.views import APIView

from inference.errors import Forbidden, MethodNotAllowed, NotFound
from inference.management_api import errors
from inference.management_api.authentication import authenticate
from inference.management_api.bodies import (
    Fields,
    Nothing,
    check_content_type,
    read_body,
    read_query,
)
from inference.management_api.callers import Caller, TenantAccess
from tenants.isolation.audit_actor import audit_actor
from tenants.isolation.scoping import tenant_scope
from tenants.models import Tenant
from tenants.permissions import Permission

_Body = TypeVar("_Body", bound=Fields)
Handler = Callable[..., Response]
_READING: Final = frozenset({"GET", "HEAD"})


class ManagementView(APIView):
    """A call for anybody who is known. Its methods are `get`, `post`, `patch` and `delete`."""

    http_method_names = ["get", "head", "post", "patch", "delete"]
    # What may stand behind the question mark, by method; `query` holds it.
    parameters: ClassVar[Mapping[str, type[Fields]]] = {}
    # Who may call is `authenticate`'s and the tenants' permission table's to say, not DRF's.
    authentication_classes = []
    permission_classes = []

    caller: Caller
    query: Any

    def dispatch(self, request: HttpRequest, *args: Any, **ids: Any) -> HttpResponse:
        self.args, self.kwargs = args, ids
        self.request = self.initialize_request(request, *args, **ids)
        self.format_kwarg = None
        self.headers = {}
        try:
            answer = self.answer(self._handler(), **ids)
        except Exception as error:  # noqa: BLE001 - the caller gets a typed answer, the log the rest
            refusal = errors.answer(errors.api_error(error))
            if refusal.status_code == 405:
                refusal["Allow"] = self._allow()
            return errors.finish(refusal)
        return errors.finish(self.finalize_response(self.request, answer, *args, **ids))

    def answer(self, handler: Handler, **ids: Any) -> Response:
        """Authenticate, authorize, then call the handler. Raises the error that the caller gets."""
        self.identify()
        return handler(**ids)

    def identify(self) -> None:
        """Authenticate the caller, once the request can be read."""
        self.perform_content_negotiation(self.request)
        check_content_type(self.request)
        self.caller = authenticate(self.request)
        self.query = read_query(self.request, self.parameters.get(self._method(), Nothing))

    def body(self, kind: type[_Body]) -> _Body:
        return read_body(self.request, kind)

    def _handler(self) -> Handler:
        """Refuse an unsupported method. The same for everybody, so it precedes authentication."""
        method = (self.request.method or "").lower()
        handler = getattr(self, method, None) if method in self.http_method_names else None
        if handler is None:
            raise MethodNotAllowed(
                f"This takes {self._allow()}, got {(self.request.method or '')[:20]}."
            )
        found: Handler = handler
        return found

    def _method(self) -> str:
        method = self.request.method or ""
        return "GET" if method == "HEAD" else method

    def _allow(self) -> str:
        return ", ".join(self.allowed_methods)


class TenantView(ManagementView):
    """A call about one tenant: its methods run inside that tenant's walls, in one transaction.

    `permissions` says what each method takes. While a tenant is suspended its people may look, and
    do what is in `while_suspended`.
    """

    permissions: ClassVar[Mapping[str, Permission]] = {}
    while_suspended: ClassVar[frozenset[str]] = frozenset()

    tenant: Tenant
    access: TenantAccess

    def answer(self, handler: Handler, **ids: Any) -> Response:
        self.identify()
        return self.answer_within(ids.pop("tenant_id"), handler, **ids)

    def answer_within(self, tenant_id: uuid.UUID, handler: Handler, **ids: Any) -> Response:
        """Call the handler for a known tenant and caller."""
        self.access = self.caller.access_to(tenant_id)
        self._check_permission()
        actor = self.caller.as_actor()
        with audit_actor(actor, self.caller.address), tenant_scope(tenant_id):
            self.tenant = Tenant.objects.select_related("tier").get(id=tenant_id)
            self._check_tenant()
            return handler(**ids)

    def _check_permission(self) -> None:
        permission = self.permissions[self._method()]
        if permission not in self.access.permissions:
            raise self.caller.refusal(permission, self.access)

    def _check_tenant(self) -> None:
        if self.tenant.closed_at is not None:
            raise NotFound(errors.NOTHING_HERE)
        method = self._method()
        is_harmless = method in _READING or method in self.while_suspended
        if self.tenant.is_suspended and not is_harmless:
            raise Forbidden(
                "This organisation is suspended. Contact the operator of the service.",
                code="tenant_suspended",
            )


class Unknown(ManagementView):
    """Every other address below ours, for everybody and with every method."""

    def dispatch(self, request: HttpRequest, *args: Any, **ids: Any) -> HttpResponse:
        return errors.finish(errors.answer(NotFound(errors.NOTHING_HERE)))
