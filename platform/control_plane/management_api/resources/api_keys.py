"""API keys of a tenant. A key is shown in the one answer that makes it, and never again.

What a key may be, and that it is never wider than whoever makes or changes it, is said in
tenants/access/api_keys.py alone.
"""

import uuid
from datetime import timedelta
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, ValidationError

from control_plane.management_api.serializers import Nothing, StrictSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import ApiKeyFilter
from gpu_workers.protocol.policy import Scope
from tenants.access.api_keys import (
    LONGEST_OVERLAP,
    change_api_key,
    issue_api_key,
    revoke_api_key,
    rotate_api_key,
)
from tenants.access.key_lists import KEYS_ORDER
from tenants.models import ApiKey, Project
from tenants.permissions import Permission


def _names() -> fields.ListField:
    return fields.ListField(
        child=fields.CharField(max_length=200), max_length=100, allow_null=True, required=False
    )


class ApiKeySerializer(StrictSerializer):
    """None takes a bound away. `created_by_id`: a person, None where a key or an operator made
    it. `is_playground`: it stands for that person's playground in the project, and has no
    secret."""

    object = fields.ConstantField("api_key")
    id = fields.UUIDField(read_only=True)
    masked = fields.CharField(read_only=True)
    name = fields.CharField(max_length=200, allow_blank=True, required=False)
    project_id = fields.UUIDField(read_only=True)
    scopes = fields.ListField(
        child=fields.ChoiceField(list(Scope)), min_length=1, max_length=len(Scope), required=False
    )
    expires_at = fields.DateTimeField(allow_null=True, required=False)
    allowed_networks = _names()
    allowed_models = _names()
    allowed_adapters = _names()
    is_playground = fields.BooleanField(read_only=True)
    created_by_id = fields.UUIDField(read_only=True, allow_null=True)
    budget_key_id = fields.UUIDField(read_only=True, allow_null=True)
    created_at = fields.DateTimeField(read_only=True)
    rotated_at = fields.DateTimeField(read_only=True, allow_null=True)
    previous_expires_at = fields.DateTimeField(read_only=True, allow_null=True)
    last_used_at = fields.DateTimeField(read_only=True, allow_null=True)
    revoked_at = fields.DateTimeField(read_only=True, allow_null=True)

    def validate_scopes(self, scopes: list[Scope]) -> list[Scope]:
        added = set(scopes) - set(self.instance.scopes if self.instance else scopes)
        if added:
            raise ValidationError(
                "Scopes can be taken from a key and not added; make a new key with "
                f"{', '.join(sorted(added))}."
            )
        return scopes

    def update(self, instance: ApiKey, validated_data: dict[str, Any]) -> ApiKey:
        change_api_key(instance, **validated_data)
        return instance


class NewApiKeySerializer(ApiKeySerializer):
    """What is left out is inherited from the key that makes it, if one does."""

    project_id = fields.UUIDField()
    key = fields.CharField(source="shown_once", read_only=True)

    def validate_project_id(self, project_id: uuid.UUID) -> Project:
        project = Project.objects.filter(id=project_id).first()
        if project is None:
            raise ValidationError("There is no such project.")
        return project

    def create(self, validated_data: dict[str, Any]) -> ApiKey:
        issued = issue_api_key(validated_data.pop("project_id"), **validated_data)
        issued.record.shown_once = issued.key
        return issued.record


class RotationSerializer(StrictSerializer):
    """For how long the key before goes on working."""

    overlap_seconds = fields.IntegerField(
        min_value=0, max_value=int(LONGEST_OVERLAP.total_seconds()), default=0
    )


class ApiKeyViewSet(
    mixins.ListModelMixin,
    mixins.CreateModelMixin,
    mixins.RetrieveModelMixin,
    mixins.UpdateModelMixin,
    TenantScopedViewSet,
):
    summaries: ClassVar = {
        "list": "List API keys",
        "create": "Make an API key",
        "retrieve": "Show an API key",
        "partial_update": "Narrow or rename an API key",
        "rotate": "Rotate an API key",
        "revoke": "Revoke an API key",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW,
        "create": Permission.WRITE_KEYS,
        "retrieve": Permission.VIEW,
        "partial_update": Permission.WRITE_KEYS,
        "rotate": Permission.WRITE_KEYS,
        "revoke": Permission.WRITE_KEYS,
    }
    # Also then a leaked key can be stopped for good.
    while_suspended: ClassVar = frozenset({"revoke"})
    secrets: ClassVar = frozenset({"key"})
    serializer_class = ApiKeySerializer
    serializer_classes: ClassVar = {"create": NewApiKeySerializer}
    order = KEYS_ORDER
    filterset_class = ApiKeyFilter
    lookup_url_kwarg = "key_id"

    def get_queryset(self) -> QuerySet[ApiKey]:
        return ApiKey.objects.all()

    def perform_create(self, serializer: BaseSerializer[Any]) -> None:
        serializer.save(by=self.access.principal)

    def perform_update(self, serializer: BaseSerializer[Any]) -> None:
        serializer.save(by=self.access.principal)

    @extend_schema(responses=NewApiKeySerializer)
    @action(detail=True, methods=["post"], serializer_class=RotationSerializer)
    def rotate(self, _request: Request, **_ids: uuid.UUID) -> Response:
        key = self.get_object()
        overlap = timedelta(seconds=self.body()["overlap_seconds"])
        key.shown_once = rotate_api_key(key, overlap=overlap, by=self.access.principal)
        return Response(NewApiKeySerializer(key).data)

    @extend_schema(responses=ApiKeySerializer)
    @action(detail=True, methods=["post"], serializer_class=Nothing)
    def revoke(self, _request: Request, **_ids: uuid.UUID) -> Response:
        key = self.get_object()
        self.body()
        revoke_api_key(key, by=self.access.principal)
        return Response(ApiKeySerializer(key).data)
