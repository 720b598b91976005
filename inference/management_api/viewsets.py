"""What all viewsets of the management API share beside DRF's own: a method that is not taken is
refused first, parameters are checked as bodies are, and the walls of the tenant in the path stand
around all that an action does."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import Any, ClassVar, Final, NoReturn, cast

from django.core.exceptions import ImproperlyConfigured
from django.utils.decorators import classonlymethod
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.viewsets import GenericViewSet

from inference.errors import Forbidden, MethodNotAllowed, NotFound
from inference.management_api.callers import Caller, TenantAccess
from inference.management_api.errors import NOTHING_HERE, finish
from inference.management_api.parsers import check_body_headers, single_values
from inference.management_api.permissions import MayInTenant
from inference.management_api.serializers import ListQuery, Nothing, StrictSerializer
from tenants.isolation.audit_actor import audit_actor
from tenants.isolation.scoping import tenant_scope
from tenants.models import Tenant
from tenants.pagination import Order
from tenants.permissions import Permission

_READING: Final = frozenset({"GET", "HEAD"})


class ManagementViewSet(GenericViewSet[Any]):
    """Of whoever is known. Authentication, parsers, pages and errors are those of the settings
    (`REST_FRAMEWORK`)."""

    http_method_names = ["get", "head", "post", "patch", "delete"]
    # Of the actions that take others than `serializer_class` says.
    serializer_classes: ClassVar[Mapping[str, type[Serializer[Any]]]] = {}
    # What may stand behind the question mark, by action.
    query_serializers: ClassVar[Mapping[str, type[StrictSerializer]]] = {"list": ListQuery}
    # How lists are ordered.
    order: ClassVar[Order]
    lookup_value_converter = "uuid"

    @property
    def caller(self) -> Caller:
        return cast(Caller, self.request.auth)

    @cached_property
    def query(self) -> dict[str, Any]:
        """Return the parameters of the address. Raises `ValidationError` and `InvalidRequest`."""
        kind = self.query_serializers.get(self.action, Nothing)
        serializer = kind(data=single_values(self.request.query_params))
        serializer.is_valid(raise_exception=True)
        values: dict[str, Any] = serializer.validated_data
        return values

    def body(self) -> dict[str, Any]:
        """Return the fields of the body, by the action's serializer. Raises `ValidationError`."""
        serializer = self.get_serializer(data=self.request.data)
        serializer.is_valid(raise_exception=True)
        values: dict[str, Any] = serializer.validated_data
        return values

    def get_serializer_class(self) -> type[Any]:
        return self.serializer_classes.get(self.action) or super().get_serializer_class()

    def get_order(self) -> Order:
        return self.order

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method not in self.allowed_methods:
            # The same for everybody, so it precedes authentication.
            self.http_method_not_allowed(request)
        super().initial(request, *args, **kwargs)
        self.query  # noqa: B018 - refuses what no action would look at
        if request.method == "DELETE":
            Nothing(data=request.data).is_valid(raise_exception=True)

    def perform_authentication(self, request: Request) -> None:
        """Check the body's headers first: to find its CSRF token Django would read a form."""
        check_body_headers(request)
        super().perform_authentication(request)

    def http_method_not_allowed(  # type: ignore[override]  # as DRF's own
        self, request: Request, *_: Any, **__: Any
    ) -> NoReturn:
        allowed, method = ", ".join(self.allowed_methods), (request.method or "")[:20]
        raise MethodNotAllowed(f"This takes {allowed}, got {method}.")

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        return finish(super().finalize_response(request, response, *args, **kwargs))


class TenantScopedViewSet(ManagementViewSet):
    """Of one tenant, that of the path: its actions run inside the tenant's walls, in one
    transaction.

    `permission_map` says what each action takes. While a tenant is suspended its people may look,
    and do what is in `while_suspended`.
    """

    permission_classes = [MayInTenant]
    permission_map: ClassVar[Mapping[str, Permission]] = {}
    while_suspended: ClassVar[frozenset[str]] = frozenset()

    tenant: Tenant

    @classonlymethod
    def as_view(cls, actions: Any = None, **initkwargs: Any) -> Any:  # noqa: N805
        """Raises `ImproperlyConfigured` for an action without a permission."""
        taken = {actions[method] for method in actions or () if method in cls.http_method_names}
        if missing := taken - cls.permission_map.keys():
            raise ImproperlyConfigured(f"{cls.__name__}.permission_map lacks {sorted(missing)}.")
        return super().as_view(actions, **initkwargs)

    @property
    def tenant_id(self) -> uuid.UUID:
        tenant_id: uuid.UUID = self.kwargs["tenant_id"]
        return tenant_id

    @cached_property
    def access(self) -> TenantAccess:
        """Return what the caller may do here. Raises `NotFound` for a tenant that is not theirs."""
        return self.caller.access_to(self.tenant_id)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        # Here the caller is known and may; what follows is the action, as `as_view` has bound it.
        method = (request.method or "").lower()
        setattr(self, method, self._inside(getattr(self, method)))

    @contextmanager
    def walls(self) -> Iterator[None]:
        """Open the tenant's scope in the caller's name. Raises `NotFound` for a closed tenant,
        `Forbidden` for a change to a suspended one."""
        with tenant_scope(self.tenant_id):
            self.tenant = Tenant.objects.select_related("tier").get(id=self.tenant_id)
            self._check_tenant()
            yield

    def _inside(self, action: Callable[..., Response]) -> Callable[..., Response]:
        @wraps(action)
        def inside(request: Request, *args: Any, **kwargs: Any) -> Response:
            with audit_actor(self.caller.as_actor(), self.caller.address), self.walls():
                return action(request, *args, **kwargs)

        return inside

    def _check_tenant(self) -> None:
        if self.tenant.closed_at is not None:
            raise NotFound(NOTHING_HERE)
        is_harmless = self.request.method in _READING or self.action in self.while_suspended
        if self.tenant.is_suspended and not is_harmless:
            raise Forbidden(
                "This organisation is suspended. Contact the operator of the service.",
                code="tenant_suspended",
            )
