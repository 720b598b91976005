"""Tenants: those that the caller belongs to, and one of them."""

from typing import Any, ClassVar, cast

from django.db.models import QuerySet
from rest_framework import mixins, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.callers import KeyBearer
from control_plane.management_api.pagination import ListPagination
from control_plane.management_api.serializers import ListQuery, StrictSerializer
from control_plane.management_api.viewsets import ManagementViewSet, TenantScopedViewSet
from control_plane.records import fields
from tenants.access.people import tenants_of
from tenants.models import Tenant
from tenants.pagination import Page
from tenants.permissions import Permission, Role


class PlaceSerializer(serializers.Serializer[Any]):
    """A tenant, and for a person their role in it."""

    sometimes = frozenset({"role"})

    object = fields.ConstantField("tenant")
    id = fields.UUIDField(source="tenant.id", read_only=True)
    name = fields.CharField(source="tenant.name", read_only=True)
    role = serializers.ChoiceField(list(Role), read_only=True)


class PlacesQuery(ListQuery):
    role = fields.ChoiceField(list(Role), default=None)
    search = fields.CharField(max_length=200, default=None)


class TenantsViewSet(ManagementViewSet):
    """Filters look at one page after the other, so that a page may be short, or empty."""

    summaries: ClassVar = {"list": "List the caller's organisations"}
    serializer_class = PlaceSerializer
    query_serializers: ClassVar = {"list": PlacesQuery}

    def list(self, request: Request) -> Response:
        places: Page[Any]
        if isinstance(self.caller, KeyBearer):
            places = Page(rows=[_place_of(self.caller)], next_cursor=None)
        else:
            places = tenants_of(
                self.caller.user, limit=self.query["limit"], cursor=self.query["cursor"]
            )
        cast(ListPagination, self.paginator).next_cursor = places.next_cursor
        wanted = [place for place in places.rows if _is_wanted(place, **self.query)]
        return self.get_paginated_response(self.get_serializer(wanted, many=True).data)


class TenantSerializer(StrictSerializer):
    """All but the name is the operator's."""

    always = frozenset({"name"})

    object = fields.ConstantField("tenant")
    id = fields.UUIDField(read_only=True)
    name = fields.NameField()
    slug = fields.CharField(read_only=True)
    role = serializers.SerializerMethodField()
    permissions = serializers.SerializerMethodField()
    tier = fields.CharField(source="tier.name", read_only=True)
    is_suspended = fields.BooleanField(read_only=True)
    created_at = fields.DateTimeField(read_only=True)

    def get_role(self, _tenant: Tenant) -> Role | None:
        role: Role | None = self.context["view"].access.role
        return role

    def get_permissions(self, _tenant: Tenant) -> list[Permission]:
        return sorted(self.context["view"].access.permissions)

    def update(self, instance: Tenant, validated_data: dict[str, Any]) -> Tenant:
        instance.rename(validated_data["name"])
        return instance


class OneTenantViewSet(mixins.RetrieveModelMixin, mixins.UpdateModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {
        "retrieve": "Show an organisation",
        "partial_update": "Rename an organisation",
    }
    permission_map: ClassVar = {
        "retrieve": Permission.VIEW,
        "partial_update": Permission.WRITE_PROJECTS,
    }
    serializer_class = TenantSerializer
    lookup_url_kwarg = "tenant_id"

    def get_queryset(self) -> QuerySet[Tenant]:
        return Tenant.objects.select_related("tier")

    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change the one field, which may not be left out."""
        return self.update(request, *args, **kwargs)


def _is_wanted(place: Any, *, role: Role | None, search: str | None, **_: Any) -> bool:
    tenant = place["tenant"] if isinstance(place, dict) else place.tenant
    is_in_role = role is None or getattr(place, "role", None) is role
    return is_in_role and (search or "").casefold() in tenant.name.casefold()


def _place_of(caller: KeyBearer) -> dict[str, Any]:
    """Return the key's tenant. Raises `Forbidden` where the key may not look at it."""
    access = caller.access_to(caller.key.tenant_id)
    if Permission.VIEW not in access.permissions:
        raise caller.refusal(Permission.VIEW, access)
    return {"tenant": caller.key.tenant}
