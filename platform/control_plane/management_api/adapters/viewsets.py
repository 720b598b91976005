"""LoRA adapters of a tenant, their versions, and which of them answer. An API key that lists
adapters sees and changes those alone."""

import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ModelViewSet

from control_plane.management_api.adapters.serializers import (
    AdapterSerializer,
    AdapterVersionSerializer,
    NewAdapterSerializer,
    NewVersionSerializer,
    VersionUseQuery,
    VersionUseSerializer,
)
from control_plane.management_api.callers import KeyBearer
from control_plane.management_api.pagination import OnePage
from control_plane.management_api.serializers import ListQuery, Nothing
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records.filters import AdapterFilter, AdapterVersionFilter
from inference.adapters import lifecycle
from inference.adapters.lists import stored_versions
from inference.adapters.worker_counts import WorkerCounts, worker_counts_of
from inference.errors import Forbidden
from inference.models.adapter import Adapter, AdapterVersion
from inference.usage.adapter_versions import compare_versions
from tenants.models import Tenant
from tenants.pagination import NEWEST_FIRST, Order
from tenants.permissions import Permission

_ADAPTERS = Order(name="adapters", fields=NEWEST_FIRST, is_descending=True)
_VERSIONS = Order(name="adapter versions", fields=NEWEST_FIRST, is_descending=True)


class _OfAdapters(TenantScopedViewSet):
    def adapters(self) -> QuerySet[Adapter]:
        """Return those that the caller may see."""
        adapters = Adapter.objects.select_related("tenant__tier")
        allowed = self._allowed_slugs()
        return adapters if allowed is None else adapters.filter(slug__in=allowed)

    def check_allowed(self, slug: str) -> None:
        """Raises `Forbidden` for a name that the caller's key does not list."""
        allowed = self._allowed_slugs()
        if allowed is not None and slug not in allowed:
            raise Forbidden(
                "This API key may use the adapters that it lists, and this is none of them.",
                code="adapter_not_allowed",
            )

    def _allowed_slugs(self) -> list[str] | None:
        if not isinstance(self.caller, KeyBearer) or self.caller.key.allowed_adapters is None:
            return None
        return _slugs(self.tenant, self.caller.key.allowed_adapters)


class AdapterViewSet(ModelViewSet[Any], _OfAdapters):
    summaries: ClassVar = {
        "list": "List adapters",
        "create": "Add an adapter",
        "retrieve": "Show an adapter",
        "partial_update": "Point an adapter's traffic at versions",
        "destroy": "Archive an adapter and delete its versions",
        "usage": "Compare an adapter's versions",
        "pin": "Keep an adapter at hand on workers",
        "unpin": "Keep an adapter at hand no longer",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW_ADAPTERS,
        "create": Permission.WRITE_ADAPTERS,
        "retrieve": Permission.VIEW_ADAPTERS,
        "partial_update": Permission.WRITE_ADAPTERS,
        "destroy": Permission.WRITE_ADAPTERS,
        "usage": Permission.VIEW_USAGE,
        "pin": Permission.WRITE_ADAPTERS,
        "unpin": Permission.WRITE_ADAPTERS,
    }
    query_serializers: ClassVar = {"list": ListQuery, "usage": VersionUseQuery}
    serializer_class = AdapterSerializer
    serializer_classes: ClassVar = {"create": NewAdapterSerializer}
    order = _ADAPTERS
    filterset_class = AdapterFilter
    lookup_url_kwarg = "adapter_id"

    def get_queryset(self) -> QuerySet[Adapter]:
        return self.adapters()

    def perform_create(self, serializer: serializers.BaseSerializer[Any]) -> None:
        self.check_allowed(serializer.validated_data["slug"])
        serializer.save(tenant=self.tenant)

    def perform_destroy(self, instance: Adapter) -> None:
        lifecycle.delete_adapter(instance)

    @extend_schema(responses=VersionUseSerializer(many=True))
    @action(
        detail=True,
        methods=["get"],
        serializer_class=VersionUseSerializer,
        pagination_class=OnePage,
        filterset_class=None,
    )
    def usage(self, _request: Request, **_ids: uuid.UUID) -> Response:
        adapter: Adapter = self.get_object()
        until = timezone.now()
        since = until - timedelta(days=int(self.query["days"]))
        rows = compare_versions(self.tenant.id, adapter.name, since=since, until=until)
        return self.get_paginated_response(self.get_serializer(rows, many=True).data)

    @extend_schema(responses=AdapterSerializer)
    @action(detail=True, methods=["post"], serializer_class=Nothing)
    def pin(self, _request: Request, **_ids: uuid.UUID) -> Response:
        return self._changed(lifecycle.pin_adapter)

    @extend_schema(responses=AdapterSerializer)
    @action(detail=True, methods=["post"], serializer_class=Nothing)
    def unpin(self, _request: Request, **_ids: uuid.UUID) -> Response:
        return self._changed(lifecycle.unpin_adapter)

    def _changed(self, change: Callable[[Adapter], Adapter]) -> Response:
        adapter = self.get_object()
        self.body()
        return Response(
            AdapterSerializer(change(adapter), context=self.get_serializer_context()).data
        )


class AdapterVersionViewSet(
    mixins.ListModelMixin,
    mixins.CreateModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    _OfAdapters,
):
    """What is deleted stays in the list: its number was used."""

    summaries: ClassVar = {
        "list": "List an adapter's versions",
        "create": "Make an uploaded file the next version",
        "retrieve": "Show a version",
        "destroy": "Delete a version once nothing needs it any more",
        "archive": "Answer no new request with a version",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW_ADAPTERS,
        "create": Permission.WRITE_ADAPTERS,
        "retrieve": Permission.VIEW_ADAPTERS,
        "destroy": Permission.WRITE_ADAPTERS,
        "archive": Permission.WRITE_ADAPTERS,
    }
    serializer_class = AdapterVersionSerializer
    serializer_classes: ClassVar = {"create": NewVersionSerializer}
    order = _VERSIONS
    filterset_class = AdapterVersionFilter
    lookup_url_kwarg = "version_id"

    @cached_property
    def adapter(self) -> Adapter:
        adapters = self.adapters().select_related("tenant", "model")
        return get_object_or_404(adapters, id=self.kwargs["adapter_id"])

    @cached_property
    def held(self) -> Mapping[int, WorkerCounts] | None:
        """Return where workers have the version that is asked for, or all of the adapter's; None
        while nobody can tell."""
        versions = stored_versions(self.adapter)
        if "version_id" in self.kwargs:
            versions = versions.filter(id=self.kwargs["version_id"])
        return worker_counts_of(self.adapter.model.pool_id, list(versions))

    def get_queryset(self) -> QuerySet[AdapterVersion]:
        versions = AdapterVersion.objects.filter(adapter=self.adapter)
        return versions.select_related("adapter__tenant", "adapter__model")

    @extend_schema(responses={201: AdapterVersionSerializer})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().create(request, *args, **kwargs)

    def perform_create(self, serializer: serializers.BaseSerializer[Any]) -> None:
        serializer.save(adapter=self.adapter)

    def perform_destroy(self, instance: AdapterVersion) -> None:
        lifecycle.delete_version(instance)

    @extend_schema(responses=AdapterVersionSerializer)
    @action(detail=True, methods=["post"], serializer_class=Nothing)
    def archive(self, _request: Request, **_ids: uuid.UUID) -> Response:
        version = self.get_object()
        self.body()
        archived = lifecycle.archive_version(version)
        context = self.get_serializer_context()
        return Response(AdapterVersionSerializer(archived, context=context).data)


def _slugs(tenant: Tenant, names: list[str]) -> list[str]:
    prefix = f"{tenant.slug}/"
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
