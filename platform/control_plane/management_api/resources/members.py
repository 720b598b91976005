"""Members of a tenant: who belongs to it, in which role; leaving it, and handing it over. Whoever
is to become one is invited."""

from typing import Any, ClassVar, cast

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, ChoiceField
from rest_framework.viewsets import ModelViewSet

from control_plane.management_api.permissions import IsPerson, MayInTenant
from control_plane.management_api.resources.invitations import InvitationSerializer, InvitingViewSet
from control_plane.management_api.serializers import ListQuery, StrictSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import MemberFilter
from tenants.access.people import (
    MEMBERS_ORDER,
    change_role,
    leave,
    lock_owners,
    remove,
    set_alerts,
    transfer_ownership,
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


class RemovalQuery(StrictSerializer):
    """Whether the API keys that the member made are revoked, too."""

    revoke_keys = ChoiceField(["true", "false"], default="false")


class HeirSerializer(StrictSerializer):
    """The member who is to own the tenant."""

    member_id = fields.UUIDField()


class MemberViewSet(ModelViewSet[Any], InvitingViewSet):
    summaries: ClassVar = {
        "list": "List members",
        "create": "Invite somebody",
        "retrieve": "Show a member",
        "partial_update": "Change a member's role or alerts",
        "destroy": "Remove a member",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW_PEOPLE,
        "create": Permission.WRITE_PEOPLE,
        "retrieve": Permission.VIEW_PEOPLE,
        "partial_update": Permission.WRITE_PEOPLE,
        "destroy": Permission.WRITE_PEOPLE,
    }
    serializer_class = MemberSerializer
    serializer_classes: ClassVar = {"create": InvitationSerializer}
    query_serializers: ClassVar = {"list": ListQuery, "destroy": RemovalQuery}
    order = MEMBERS_ORDER
    filterset_class = MemberFilter
    lookup_url_kwarg = "member_id"

    def get_queryset(self) -> QuerySet[Membership]:
        return Membership.objects.select_related("user")

    def locked(self, rows: QuerySet[Membership]) -> Any:
        lock_owners(self.tenant_id)
        return super().locked(rows)

    @extend_schema(responses={202: InvitationSerializer})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Invite somebody: the answer is the invitation, and 202, as nobody is a member yet."""
        response = super().create(request, *args, **kwargs)
        response.status_code = status.HTTP_202_ACCEPTED
        return response

    def perform_create(self, serializer: BaseSerializer[Any]) -> None:
        self.invite(serializer)

    def perform_update(self, serializer: BaseSerializer[Any]) -> None:
        serializer.save(by=self.access.permissions)

    def perform_destroy(self, instance: Membership) -> None:
        revoke_keys = self.query["revoke_keys"] == "true"
        remove(instance, by=self.access.permissions, revoke_keys=revoke_keys)


class OwnMembershipViewSet(TenantScopedViewSet):
    """The caller's own membership; deleting it is leaving."""

    permission_classes = [MayInTenant, IsPerson]
    summaries: ClassVar = {"destroy": "Leave the organisation"}
    permission_map: ClassVar = {"destroy": Permission.VIEW}

    @extend_schema(request=None, responses={204: None})
    def destroy(self, _request: Request, **_ids: Any) -> Response:
        assert isinstance(self.access.principal, Membership)  # no key's  # noqa: S101
        leave(self.access.principal)
        return Response(status=status.HTTP_204_NO_CONTENT)


class TransferViewSet(TenantScopedViewSet):
    """Ownership, handed to another member: the owner who asks is an admin afterwards."""

    summaries: ClassVar = {"create": "Hand the organisation over to another owner"}
    permission_map: ClassVar = {"create": Permission.TRANSFER}
    serializer_class = HeirSerializer

    @extend_schema(responses={200: MemberSerializer})
    def create(self, _request: Request, **_ids: Any) -> Response:
        heir = Membership.objects.get(id=self.body()["member_id"])
        owner = cast(Membership, self.access.principal)
        return Response(MemberSerializer(transfer_ownership(heir, by=owner)).data)
