"""GET /me: who asks, and what they may do where. For people and for keys with any scope."""

from typing import Any, ClassVar

from drf_spectacular.utils import (
    PolymorphicProxySerializer,
    extend_schema,
    extend_schema_field,
)
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.callers import KeyBearer
from control_plane.management_api.serializers import MAX_ROWS
from control_plane.management_api.viewsets import ManagementViewSet
from control_plane.records import fields
from gpu_workers.protocol.policy import Scope
from tenants.access.people import TenantRole, tenants_of
from tenants.isolation.scoping import tenant_scope
from tenants.permissions import ROLE_PERMISSIONS, Permission, Role, permissions_of


class PersonsTenantSerializer(serializers.Serializer[Any]):
    id = fields.UUIDField(source="tenant.id", read_only=True)
    name = fields.CharField(source="tenant.name", read_only=True)
    role = serializers.ChoiceField(list(Role), read_only=True)
    permissions = serializers.SerializerMethodField()

    def get_permissions(self, place: TenantRole) -> list[Permission]:
        return sorted(ROLE_PERMISSIONS[place.role])


class PersonSerializer(serializers.Serializer[Any]):
    """A person with the first of their tenants; GET /tenants lists all."""

    object = fields.ConstantField("person")
    email = fields.CharField(read_only=True)
    name = fields.CharField(read_only=True)
    tenants = serializers.SerializerMethodField()

    @extend_schema_field(PersonsTenantSerializer(many=True))
    def get_tenants(self, user: Any) -> list[dict[str, Any]]:
        places = tenants_of(user, limit=MAX_ROWS).rows
        return list(PersonsTenantSerializer(places, many=True).data)


class KeysTenantSerializer(serializers.Serializer[Any]):
    id = fields.UUIDField(source="key.tenant_id", read_only=True)
    name = fields.CharField(source="key.tenant.name", read_only=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(list(Scope)), read_only=True)
    permissions = serializers.SerializerMethodField()

    def get_permissions(self, caller: KeyBearer) -> list[Permission]:
        return sorted(permissions_of(caller.scopes))


class NamedSerializer(serializers.Serializer[Any]):
    id = fields.UUIDField(read_only=True)
    name = fields.CharField(read_only=True)


class KeyBearerSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("api_key")
    id = fields.UUIDField(source="key.id", read_only=True)
    name = fields.CharField(source="key.name", read_only=True)
    masked = fields.CharField(source="key.masked", read_only=True)
    project = NamedSerializer(source="key.project", read_only=True)
    tenants = serializers.SerializerMethodField()

    @extend_schema_field(KeysTenantSerializer(many=True))
    def get_tenants(self, caller: KeyBearer) -> list[dict[str, Any]]:
        return [KeysTenantSerializer(caller).data]


class MeViewSet(ManagementViewSet):
    summaries: ClassVar = {"retrieve": "Show who is asking"}

    @extend_schema(
        description="Takes a session, or any API key.",
        responses=PolymorphicProxySerializer(
            component_name="Caller",
            serializers=[PersonSerializer, KeyBearerSerializer],
            resource_type_field_name=None,
        ),
    )
    def retrieve(self, request: Request) -> Response:
        caller = self.caller
        if isinstance(caller, KeyBearer):
            with tenant_scope(caller.key.tenant_id):
                return Response(KeyBearerSerializer(caller).data)
        return Response(PersonSerializer(caller.user).data)
