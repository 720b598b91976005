"""GET audit: who did what to which record of the tenant, and when. Nothing changes it."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from rest_framework import mixins, serializers

from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import AuditFilter
from tenants.audit.lists import EVENTS_ORDER
from tenants.models import AuditEvent
from tenants.permissions import Permission


class _PersonalField(fields.CharField):
    """Something that names a person; empty once it was erased."""

    def get_attribute(self, instance: AuditEvent) -> str:
        return super().get_attribute(instance) or ""


class ActorSerializer(serializers.Serializer[Any]):
    kind = fields.CharField(source="actor_kind", read_only=True)
    id = fields.CharField(source="actor_id", read_only=True)
    name = _PersonalField(source="personal.actor_name", read_only=True)
    address = _PersonalField(source="personal.address", read_only=True)


class RecordSerializer(serializers.Serializer[Any]):
    kind = fields.CharField(source="record_kind", read_only=True)
    id = fields.CharField(source="record_id", read_only=True)
    name = _PersonalField(source="personal.record_name", read_only=True)


class AuditEventSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("audit.event")
    id = fields.UUIDField(read_only=True)
    sequence = fields.IntegerField(read_only=True)
    at = fields.DateTimeField(read_only=True)
    verb = fields.CharField(read_only=True)
    actor = ActorSerializer(source="*", read_only=True)
    record = RecordSerializer(source="*", read_only=True)
    changes = serializers.DictField(source="changed_fields", read_only=True)
    hash = fields.HexField(read_only=True)


class AuditEventViewSet(mixins.ListModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {"list": "List events of the audit log"}
    permission_map: ClassVar = {"list": Permission.VIEW_AUDIT}
    serializer_class = AuditEventSerializer
    order = EVENTS_ORDER
    filterset_class = AuditFilter

    def get_queryset(self) -> QuerySet[AuditEvent]:
        return AuditEvent.objects.select_related("personal")
