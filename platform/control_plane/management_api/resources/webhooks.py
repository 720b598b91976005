"""Webhook endpoints of a tenant, their secrets, and the log of what was sent to them. A secret is
shown in the one answer that makes it, and never again."""

import uuid
from datetime import timedelta
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ModelViewSet

from control_plane.management_api.serializers import Nothing, StrictSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import DeliveryFilter, EndpointFilter
from tenants.permissions import Permission
from tenants.webhooks.endpoints import (
    LONGEST_OVERLAP,
    NewSecret,
    add_endpoint,
    change_endpoint,
    redeliver,
    remove_endpoint,
    rotate_secret,
    send_test,
    unreachable_reason,
)
from tenants.webhooks.lists import DELIVERIES_ORDER, ENDPOINTS_ORDER
from tenants.webhooks.models import Delivery, Endpoint
from tenants.webhooks.models.endpoint import MAX_URL_CHARACTERS
from tenants.webhooks.problems import SENTENCES, Problem


class EndpointSerializer(StrictSerializer):
    """`event_types` None is all, those to come too."""

    object = fields.ConstantField("webhook_endpoint")
    id = fields.UUIDField(read_only=True)
    url = fields.CharField(max_length=MAX_URL_CHARACTERS)
    event_types = fields.ListField(
        child=fields.CharField(max_length=60, allow_blank=True),
        max_length=50,
        allow_null=True,
        required=False,
    )
    description = fields.CharField(max_length=200, allow_blank=True, required=False)
    is_enabled = fields.BooleanField(required=False)
    disabled_reason = fields.NullableCharField(read_only=True)
    disabled_at = fields.DateTimeField(read_only=True, allow_null=True)
    failing_since = fields.DateTimeField(read_only=True, allow_null=True)
    created_at = fields.DateTimeField(read_only=True)
    rotated_at = fields.DateTimeField(read_only=True, allow_null=True)
    previous_secret_expires_at = fields.DateTimeField(
        source="previous_expires_at", read_only=True, allow_null=True
    )

    def update(self, instance: Endpoint, validated_data: dict[str, Any]) -> Endpoint:
        return change_endpoint(instance, **validated_data)


class NewEndpointSerializer(EndpointSerializer):
    """With the secret. Shows a `NewSecret`."""

    is_enabled = fields.BooleanField(read_only=True)
    secret = fields.CharField(read_only=True)

    def create(self, validated_data: dict[str, Any]) -> NewSecret:
        return add_endpoint(**validated_data)

    def to_representation(self, instance: NewSecret) -> dict[str, Any]:
        shown = EndpointSerializer(instance.endpoint).data
        return {**shown, "secret": instance.secret.text}


class SecretRotationSerializer(StrictSerializer):
    """For how long deliveries are signed with the secret before it as well."""

    overlap_seconds = fields.IntegerField(
        min_value=0, max_value=int(LONGEST_OVERLAP.total_seconds()), default=24 * 3600
    )


class ProblemSerializer(serializers.Serializer[Any]):
    """Why it was not taken; None where nothing is wrong."""

    code = fields.CharField(read_only=True)
    message = fields.CharField(read_only=True)

    def to_representation(self, instance: str) -> Any:
        return {"code": instance, "message": SENTENCES[Problem(instance)]} if instance else None


class DeliverySerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("webhook_delivery")
    id = fields.UUIDField(read_only=True)
    endpoint_id = fields.UUIDField(read_only=True)
    webhook_id = fields.CharField(source="event.message_id", read_only=True)
    type = fields.CharField(source="event.type", read_only=True)
    state = fields.CharField(read_only=True)
    attempts = fields.IntegerField(read_only=True)
    next_attempt_at = fields.DateTimeField(read_only=True, allow_null=True)
    last_status_code = fields.IntegerField(read_only=True, allow_null=True)
    last_problem = ProblemSerializer(read_only=True, allow_null=True)
    created_at = fields.DateTimeField(read_only=True)
    finished_at = fields.DateTimeField(read_only=True, allow_null=True)


class AttemptSerializer(serializers.Serializer[Any]):
    number = fields.IntegerField(read_only=True)
    started_at = fields.DateTimeField(read_only=True)
    duration_ms = fields.IntegerField(read_only=True)
    status_code = fields.IntegerField(read_only=True, allow_null=True)
    problem = ProblemSerializer(read_only=True, allow_null=True)
    detail = fields.NullableCharField(read_only=True)
    response_excerpt = fields.CharField(read_only=True)


class OneDeliverySerializer(DeliverySerializer):
    """With what was sent, and each attempt."""

    data = serializers.SerializerMethodField()  # type: ignore[assignment]  # DRF takes it out
    log = AttemptSerializer(many=True, read_only=True)

    def get_data(self, delivery: Delivery) -> dict[str, Any] | None:
        # Balances and invoices are not for all who may look at webhooks.
        may_read = Permission.VIEW_BALANCE in self.context["view"].access.permissions
        return delivery.event.data if may_read else None


class EndpointViewSet(ModelViewSet[Any], TenantScopedViewSet):
    summaries: ClassVar = {
        "list": "List webhook endpoints",
        "create": "Add a webhook endpoint",
        "retrieve": "Show a webhook endpoint",
        "partial_update": "Change a webhook endpoint",
        "destroy": "Remove a webhook endpoint",
        "rotate": "Rotate a webhook endpoint's secret",
        "send_test": "Send a test event",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW_WEBHOOKS,
        "create": Permission.WRITE_WEBHOOKS,
        "retrieve": Permission.VIEW_WEBHOOKS,
        "partial_update": Permission.WRITE_WEBHOOKS,
        "destroy": Permission.WRITE_WEBHOOKS,
        "rotate": Permission.WRITE_WEBHOOKS,
        "send_test": Permission.WRITE_WEBHOOKS,
    }
    serializer_class = EndpointSerializer
    serializer_classes: ClassVar = {"create": NewEndpointSerializer}
    secrets: ClassVar = frozenset({"secret"})
    order = ENDPOINTS_ORDER
    filterset_class = EndpointFilter
    lookup_url_kwarg = "endpoint_id"

    unreachable: ValidationError | None = None

    def before_walls(self) -> None:
        """Look up where a new URL leads."""
        if self.action in ("create", "partial_update"):
            sent = self.get_serializer(data=self.request.data, partial=self.action != "create")
            if sent.is_valid() and "url" in sent.validated_data:
                self.unreachable = unreachable_reason(self.tenant_id, sent.validated_data["url"])

    def get_queryset(self) -> QuerySet[Endpoint]:
        return Endpoint.objects.all()

    def locked(self, rows: QuerySet[Endpoint]) -> Any:
        """Lock as the verbs do, at once: with a weaker lock first two could wait for each other."""
        return rows.select_for_update(of=("self",))

    def perform_create(self, serializer: serializers.BaseSerializer[Any]) -> None:
        serializer.save(tenant=self.tenant, unreachable=self.unreachable)

    def perform_update(self, serializer: serializers.BaseSerializer[Any]) -> None:
        serializer.save(unreachable=self.unreachable)

    def get_success_headers(self, data: Any) -> dict[str, str]:
        """Return none: DRF would take the endpoint's `url` for its own."""
        return {}

    def perform_destroy(self, instance: Endpoint) -> None:
        remove_endpoint(instance)

    @extend_schema(responses=NewEndpointSerializer)
    @action(detail=True, methods=["post"], serializer_class=SecretRotationSerializer)
    def rotate(self, _request: Request, **_ids: uuid.UUID) -> Response:
        endpoint = self.get_object()
        overlap = timedelta(seconds=self.body()["overlap_seconds"])
        return Response(NewEndpointSerializer(rotate_secret(endpoint, overlap=overlap)).data)

    @extend_schema(responses={201: DeliverySerializer})
    @action(detail=True, methods=["post"], url_path="test", serializer_class=Nothing)
    def send_test(self, _request: Request, **_ids: uuid.UUID) -> Response:
        endpoint = self.get_object()
        self.body()
        sent = DeliverySerializer(send_test(endpoint))
        return Response(sent.data, status=status.HTTP_201_CREATED)


class DeliveryViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {
        "list": "List deliveries",
        "retrieve": "Show a delivery with each attempt",
        "redeliver": "Deliver again",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW_WEBHOOKS,
        "retrieve": Permission.VIEW_WEBHOOKS,
        "redeliver": Permission.WRITE_WEBHOOKS,
    }
    serializer_class = DeliverySerializer
    serializer_classes: ClassVar = {"retrieve": OneDeliverySerializer}
    order = DELIVERIES_ORDER
    filterset_class = DeliveryFilter
    lookup_url_kwarg = "delivery_id"

    def get_queryset(self) -> QuerySet[Delivery]:
        endpoint = get_object_or_404(Endpoint.objects.all(), id=self.kwargs["endpoint_id"])
        return Delivery.objects.filter(endpoint=endpoint).select_related("event", "endpoint")

    @extend_schema(responses=DeliverySerializer)
    @action(detail=True, methods=["post"], serializer_class=Nothing)
    def redeliver(self, _request: Request, **_ids: uuid.UUID) -> Response:
        delivery = self.get_object()
        self.body()
        return Response(DeliverySerializer(redeliver(delivery)).data)
