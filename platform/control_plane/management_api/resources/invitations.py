"""Invitations of a tenant, and accepting one. The token of the link is in the e-mail alone: no
answer shows it."""

import uuid
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, ChoiceField

from control_plane.management_api.callers import Person
from control_plane.management_api.errors import TooManyAttempts
from control_plane.management_api.permissions import IsPerson
from control_plane.management_api.resources.tenants import PlaceSerializer
from control_plane.management_api.serializers import Nothing, StrictSerializer
from control_plane.management_api.viewsets import ManagementViewSet, TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import InvitationFilter
from tenants.access.invitations.accepting import accept
from tenants.access.invitations.inviting import INVITATIONS_ORDER, invite, resend, withdraw
from tenants.access.sign_in import (
    HOURLY_RETRY_SECONDS,
    RETRY_SECONDS,
    is_guessing_links,
    is_inviting_too_often,
)
from tenants.isolation.audit_actor import audit_actor
from tenants.models import Invitation, InvitationState
from tenants.permissions import Permission, Role


class InvitationSerializer(StrictSerializer):
    """`invited_by` is who sent the link last, None where a key (`api_key_id`) or the operator
    did."""

    object = fields.ConstantField("invitation")
    id = fields.UUIDField(read_only=True)
    email = fields.CharField(max_length=254, allow_blank=True)
    role = fields.ChoiceField(list(Role), default=Role.VIEWER)
    state = ChoiceField(list(InvitationState), read_only=True)
    invited_by = fields.CharField(
        source="invited_by.email", read_only=True, allow_null=True, default=None
    )
    api_key_id = fields.UUIDField(read_only=True, allow_null=True)
    created_at = fields.DateTimeField(read_only=True)
    sent_at = fields.DateTimeField(read_only=True)
    expires_at = fields.DateTimeField(read_only=True)
    ended_at = fields.DateTimeField(read_only=True, allow_null=True)

    def create(self, validated_data: dict[str, Any]) -> Invitation:
        return invite(**validated_data)


class InvitingViewSet(TenantScopedViewSet):
    """What sends invitations."""

    def invite(self, serializer: BaseSerializer[Any]) -> None:
        """Raises `TooManyAttempts`."""
        self.count_email(serializer.validated_data["email"])
        serializer.save(tenant=self.tenant, by=self.access.principal)

    def count_email(self, email: str) -> None:
        if is_inviting_too_often(self.request._request, self.tenant_id, email):
            raise TooManyAttempts(
                "Too many invitations, or too many e-mails to this address; try again in an hour.",
                retry_after_seconds=HOURLY_RETRY_SECONDS,
            )


class InvitationViewSet(
    mixins.ListModelMixin,
    mixins.CreateModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    InvitingViewSet,
):
    """Deleting one withdraws it; it stays on record."""

    summaries: ClassVar = {
        "list": "List invitations",
        "create": "Invite somebody by e-mail",
        "retrieve": "Show an invitation",
        "destroy": "Withdraw an invitation",
        "resend": "Send an invitation again",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW_PEOPLE,
        "create": Permission.WRITE_PEOPLE,
        "retrieve": Permission.VIEW_PEOPLE,
        "destroy": Permission.WRITE_PEOPLE,
        "resend": Permission.WRITE_PEOPLE,
    }
    serializer_class = InvitationSerializer
    order = INVITATIONS_ORDER
    filterset_class = InvitationFilter
    lookup_url_kwarg = "invitation_id"

    def get_queryset(self) -> QuerySet[Invitation]:
        return Invitation.objects.select_related("invited_by")

    def perform_create(self, serializer: BaseSerializer[Any]) -> None:
        self.invite(serializer)

    def perform_destroy(self, instance: Invitation) -> None:
        withdraw(instance, by=self.access.principal)

    @extend_schema(responses=InvitationSerializer)
    @action(detail=True, methods=["post"], serializer_class=Nothing)
    def resend(self, _request: Request, **_ids: uuid.UUID) -> Response:
        invitation = self.get_object()
        self.body()
        self.count_email(invitation.email)
        sent = resend(invitation, by=self.access.principal)
        return Response(InvitationSerializer(sent).data)


class TokenSerializer(StrictSerializer):
    """What stands in the link, behind the last slash but one."""

    token = fields.CharField(max_length=200, allow_blank=True)


class AcceptanceViewSet(ManagementViewSet):
    """For the person whose address was invited, who belongs to no tenant by that."""

    permission_classes = [IsPerson]
    serializer_class = TokenSerializer
    summaries: ClassVar = {"create": "Accept an invitation"}

    @extend_schema(
        description="Takes the session of the person whose address was invited.",
        responses={200: PlaceSerializer},
    )
    def create(self, request: Request) -> Response:
        """Answer with the tenant and the role there. Raises `InvitationRefused`."""
        caller = self.caller
        assert isinstance(caller, Person)  # no key's  # noqa: S101
        token = self.body()["token"]
        if is_guessing_links(request._request):
            raise TooManyAttempts(
                f"Too many attempts; try again in {RETRY_SECONDS} s.",
                retry_after_seconds=RETRY_SECONDS,
            )
        with audit_actor(caller.as_actor(), caller.address):
            return Response(PlaceSerializer(accept(token, caller.user)).data)
