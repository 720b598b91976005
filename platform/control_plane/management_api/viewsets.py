"""What all viewsets of the management API share beside DRF's own: a method that is not taken is
refused first, parameters are checked as bodies are, and the walls of the tenant in the path stand
around all that an action does."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import Any, ClassVar, Final, NoReturn, cast

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponseNotModified
from django.utils.decorators import classonlymethod
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.viewsets import GenericViewSet

from control_plane.management_api.callers import Caller, TenantAccess
from control_plane.management_api.errors import finish
from control_plane.management_api.idempotency import answer_once, key_of
from control_plane.management_api.parsers import check_body_headers, single_values
from control_plane.management_api.permissions import MayInTenant
from control_plane.management_api.preconditions import (
    check_preconditions,
    etag_of,
    has_preconditions,
)
from control_plane.management_api.serializers import ListQuery, Nothing, StrictSerializer
from control_plane.management_api.throttling import TenantThrottle
from control_plane.records.filters import ListFilter, bound_order
from inference.errors import MethodNotAllowed
from tenants.access.member_access import check_not_suspended, open_tenant
from tenants.isolation.audit_actor import audit_actor
from tenants.isolation.scoping import tenant_scope
from tenants.models import Tenant
from tenants.pagination import Order
from tenants.permissions import Permission

_READING: Final = frozenset({"GET", "HEAD"})
_CHANGING: Final = frozenset({"partial_update", "destroy"})
_TAGGED: Final = frozenset({"retrieve", "partial_update"})


class ManagementViewSet(GenericViewSet[Any]):
    """Of whoever is known. Authentication, parsers, pages and errors are those of the settings
    (`REST_FRAMEWORK`)."""

    http_method_names = ["get", "head", "post", "patch", "delete"]
    # Of the actions that take others than `serializer_class` says.
    serializer_classes: ClassVar[Mapping[str, type[Serializer[Any]]]] = {}
    # What may stand behind the question mark, by action.
    query_serializers: ClassVar[Mapping[str, type[StrictSerializer]]] = {"list": ListQuery}
    # What each action does, in a few words, for the API's description.
    summaries: ClassVar[Mapping[str, str]] = {}
    # Statuses of refusals that the description cannot know of.
    more_refusals: ClassVar[frozenset[int]] = frozenset()
    # How lists are ordered, and what they can be narrowed by.
    order: ClassVar[Order]
    filterset_class: ClassVar[type[ListFilter] | None] = None
    lookup_value_converter = "uuid"

    @property
    def caller(self) -> Caller:
        return cast(Caller, self.request.auth)

    @cached_property
    def query(self) -> dict[str, Any]:
        """Return the parameters of the address but for filters, which `filter_queryset` reads.
        Raises `ValidationError` and `InvalidRequest`."""
        kind = self.query_serializers.get(self.action, Nothing)
        given, filters = single_values(self.request.query_params), self.filter_names()
        serializer = kind(
            data={name: value for name, value in given.items() if name not in filters}
        )
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
        return bound_order(self.order, self.request.query_params, self.filter_names())

    def filter_names(self) -> frozenset[str]:
        """Return the parameters that the action's rows can be narrowed by."""
        if self.filterset_class is None or self.action != "list":
            return frozenset()
        return frozenset(self.filterset_class.base_filters)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method not in self.allowed_methods:
            # The same for everybody, so it precedes authentication.
            self.http_method_not_allowed(request)
        super().initial(request, *args, **kwargs)
        self.query  # noqa: B018 - refuses what no action would look at
        if request.method == "DELETE":
            Nothing(data=request.data).is_valid(raise_exception=True)

    def check_permissions(self, request: Request) -> None:
        """Count the call first: what is refused is a call too."""
        super().check_throttles(request)
        super().check_permissions(request)

    def check_throttles(self, request: Request) -> None:
        """Do nothing: it was counted before."""

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
    # Actions that take long, and open scopes themselves: the walls stand no longer than it takes to
    # look who they are for, and a repeated call is no copy of the first.
    unscoped: ClassVar[frozenset[str]] = frozenset()
    # Fields of answers that are told once: a repeated call finds null there.
    secrets: ClassVar[frozenset[str]] = frozenset()

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

    def check_permissions(self, request: Request) -> None:
        """Count the call at the tenant too, once it is known to be one of its own."""
        super().check_permissions(request)
        throttle = TenantThrottle()
        if self.is_of_one_tenant() and not throttle.allow_request(request, self):
            self.throttled(request, throttle.wait() or 1)

    def is_of_one_tenant(self) -> bool:
        """Return whether a call that has been let in is about the tenant `tenant_id`."""
        return True

    def before_walls(self) -> None:
        """Ask what others take their time to answer, the DNS for one: the caller may act, and no
        transaction is open yet. What speaks against the action is for that to raise."""

    @contextmanager
    def walls(self) -> Iterator[None]:
        """Open the tenant's scope. Raises `DoesNotExist` for a closed tenant, `NotPermitted` for a
        change to a suspended one, `Forbidden` where a session lacks what the tenant asks for."""
        with tenant_scope(self.tenant_id):
            self.tenant = open_tenant(self.tenant_id)
            self.caller.check_entry(self.tenant, self.access)
            if self.request.method not in _READING:
                self.caller.check_recent_proof(self.tenant, self.permission_map[self.action])
                if self.action not in self.while_suspended:
                    check_not_suspended(self.tenant)
            yield

    def get_object(self) -> Any:
        """Return the record, locked if it is to change. Raises as `check_seen` does, and
        `Http404`."""
        record = super().get_object()
        self.check_seen(record)
        return record

    def check_seen(self, record: Any) -> None:
        """Raises `PreconditionFailed` if the caller is about to change what they have not seen as
        it is now, and before it what is wrong with the change itself (RFC 9110, 13.2.1)."""
        if self.action not in _CHANGING or not has_preconditions(self.request):
            return
        if self.action == "partial_update":
            is_partial = not self.get_serializer_class().always
            change = self.get_serializer(record, data=self.request.data, partial=is_partial)
            change.is_valid(raise_exception=True)
        check_preconditions(self.request, etag_of(self.shown(record)))

    def filter_queryset(self, queryset: Any) -> Any:
        rows = super().filter_queryset(queryset)
        return self.locked(rows) if self.action in _CHANGING else rows

    def locked(self, rows: Any) -> Any:
        """Lock the rows until the action ends: of two changes the second sees the first."""
        return rows.select_for_update(of=("self",), no_key=True)

    def shown(self, record: Any) -> Any:
        """Return a record as `retrieve` shows it."""
        kind = self.serializer_classes.get("retrieve") or super().get_serializer_class()
        return kind(record, context=self.get_serializer_context()).data

    def _inside(self, action: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(action)
        def inside(request: Request, *args: Any, **kwargs: Any) -> Any:
            actor = self.caller.as_actor()
            self.before_walls()
            if self.action in self.unscoped:
                with audit_actor(actor, self.caller.address):
                    with self.walls():
                        pass
                    return action(request, *args, **kwargs)
            key = key_of(request)
            with audit_actor(actor, self.caller.address), self.walls():
                if key is None:
                    return self._tagged(action(request, *args, **kwargs))
                return answer_once(
                    request,
                    key,
                    lambda: action(request, *args, **kwargs),
                    tenant=self.tenant,
                    caller=actor,
                    secrets=self.secrets,
                )

        return inside

    def _tagged(self, response: Any) -> Any:
        """Return the answer of a single record with its entity tag, or only that the reader has it
        already."""
        if self.action not in _TAGGED or response.status_code != status.HTTP_200_OK:
            return response
        etag = etag_of(response.data)
        if self.action == "retrieve" and check_preconditions(self.request, etag):
            response = HttpResponseNotModified()
        response["ETag"] = etag
        return response
