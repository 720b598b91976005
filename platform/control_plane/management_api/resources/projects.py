"""Projects of a tenant: keys, quotas and usage belong to one."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from rest_framework import mixins
from rest_framework.serializers import BaseSerializer

from control_plane.management_api.serializers import StrictSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import ProjectFilter
from gpu_workers.protocol.labels import MAX_LABELS, MAX_NAME_CHARACTERS
from gpu_workers.protocol.policy import OnSaturation
from tenants.access.projects import PROJECTS_ORDER, add_project, change_project
from tenants.models import Project
from tenants.permissions import Permission


class ProjectSerializer(StrictSerializer):
    """`smaller_model` goes with that choice of `on_saturation` only; `usage_labels` are `user` and
    up to three of `metadata.<key>`, by which usage is recorded."""

    object = fields.ConstantField("project")
    id = fields.UUIDField(read_only=True)
    name = fields.NameField()
    on_saturation = fields.ChoiceField(list(OnSaturation), required=False)
    smaller_model = fields.NullableCharField(max_length=200, required=False)
    usage_labels = fields.ListField(
        child=fields.CharField(max_length=MAX_NAME_CHARACTERS),
        max_length=MAX_LABELS,
        required=False,
    )
    created_at = fields.DateTimeField(read_only=True)

    def create(self, validated_data: dict[str, Any]) -> Project:
        return add_project(**validated_data)

    def update(self, instance: Project, validated_data: dict[str, Any]) -> Project:
        change_project(instance, **validated_data)
        return instance


class ProjectViewSet(
    mixins.ListModelMixin,
    mixins.CreateModelMixin,
    mixins.RetrieveModelMixin,
    mixins.UpdateModelMixin,
    TenantScopedViewSet,
):
    summaries: ClassVar = {
        "list": "List projects",
        "create": "Create a project",
        "retrieve": "Show a project",
        "partial_update": "Change a project",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW,
        "create": Permission.WRITE_PROJECTS,
        "retrieve": Permission.VIEW,
        "partial_update": Permission.WRITE_PROJECTS,
    }
    serializer_class = ProjectSerializer
    order = PROJECTS_ORDER
    filterset_class = ProjectFilter
    lookup_url_kwarg = "project_id"

    def get_queryset(self) -> QuerySet[Project]:
        return Project.objects.all()

    def perform_create(self, serializer: BaseSerializer[Any]) -> None:
        serializer.save(tenant=self.tenant)
