"""Members of a tenant: who belongs to it, in which role."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from rest_framework.serializers import BaseSerializer
from rest_framework.viewsets import ModelViewSet

from inference.management_api import fields
from inference.management_api.filters import MemberFilter
from inference.management_api.serializers import StrictSerializer
from inference.management_api.viewsets import TenantScopedViewSet
from tenants.access.people import (
    MEMBERS_ORDER,
    change_role,
    invite,
    lock_owners,
    remove,
    set_alerts,
)
from tenants.models import Membership
from tenants.permissions import Permission, Role


class MemberSerializer(StrictSerializer):
    """Without the user's name, which is theirs to disclose. `user_id` is what keys and the audit
    log name."""

    object = fields.ConstantField("member")
    id = fields.UUIDField(read_only=True)
    user_id = fields.UUIDField(read_only=True)
    email = fields.CharField(source="user.email", read_only=True)
    role = fields.ChoiceField(list(Role))
    gets_alerts = fields.BooleanField(required=False)
    created_at = fields.DateTimeField(read_only=True)

    def update(self, instance: Membership, validated_data: dict[str, Any]) -> Membership:
        by, member = validated_data["by"], instance
        if "role" in validated_data:
            member = change_role(member, validated_data["role"], by=by)
        if "gets_alerts" in validated_data:
            member = set_alerts(member, validated_data["gets_alerts"], by=by)
        return member


class NewMemberSerializer(StrictSerializer):
    email = fields.CharField(max_length=254, allow_blank=True)
    role = fields.ChoiceField(list(Role), default=Role.VIEWER)

    def create(self, validated_data: dict[str, Any]) -> Membership:
        return invite(**validated_data)

    def to_representation(self, instance: Membership) -> dict[str, Any]:
        return MemberSerializer(instance).data


class MemberViewSet(ModelViewSet[Any], TenantScopedViewSet):
    permission_map: ClassVar = {
        "list": Permission.VIEW_PEOPLE,
        "create": Permission.WRITE_PEOPLE,
        "retrieve": Permission.VIEW_PEOPLE,
        "partial_update": Permission.WRITE_PEOPLE,
        "destroy": Permission.WRITE_PEOPLE,
    }
    serializer_class = MemberSerializer
    serializer_classes: ClassVar = {"create": NewMemberSerializer}
    order = MEMBERS_ORDER
    filterset_class = MemberFilter
    lookup_url_kwarg = "member_id"

    def get_queryset(self) -> QuerySet[Membership]:
        return Membership.objects.select_related("user")

    def locked(self, rows: QuerySet[Membership]) -> Any:
        lock_owners()
        return super().locked(rows)

    def perform_create(self, serializer: BaseSerializer[Any]) -> None:
        serializer.save(tenant_id=self.tenant_id, by=self.access.permissions)

    def perform_update(self, serializer: BaseSerializer[Any]) -> None:
        serializer.save(by=self.access.permissions)

    def perform_destroy(self, instance: Membership) -> None:
        remove(instance, by=self.access.permissions)
