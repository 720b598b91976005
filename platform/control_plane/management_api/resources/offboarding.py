"""The end of a tenant, for its own people.

POST  /tenants/<id>/export   all data as JSON lines, of any size
POST  /tenants/<id>/close    for good; who does it types the tenant's name
"""

import uuid
from typing import Any, ClassVar

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.renderers import JsonLinesRenderer
from control_plane.management_api.serializers import Nothing, StrictSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from tenants.offboarding.closing import close_by_owner
from tenants.offboarding.download import begin_export
from tenants.permissions import Permission


class ExportViewSet(TenantScopedViewSet):
    """The log knows of the export before the first line leaves."""

    permission_map: ClassVar = {"create": Permission.EXPORT}
    summaries: ClassVar = {"create": "Export all data of the organisation"}
    serializer_class = Nothing
    renderer_classes = [JsonLinesRenderer, JSONRenderer]
    # Whoever may look may take what they see with them.
    while_suspended: ClassVar = frozenset({"create"})

    @extend_schema(responses={(200, JsonLinesRenderer.media_type): OpenApiTypes.STR})
    def create(self, _request: Request, *, tenant_id: uuid.UUID) -> StreamingHttpResponse:
        self.body()
        return StreamingHttpResponse(
            begin_export(self.tenant, self.access.permissions),
            content_type=JsonLinesRenderer.media_type,
            headers={"Content-Disposition": f'attachment; filename="{tenant_id}.jsonl"'},
        )


class ClosingSerializer(StrictSerializer):
    """`name`: the tenant's, as it is shown."""

    name = fields.CharField(max_length=fields.MAX_NAME_CHARACTERS)


class ClosedTenantSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("closed_tenant")
    revoked_api_keys = fields.IntegerField(read_only=True)
    removed_memberships = fields.IntegerField(read_only=True)


class ClosingViewSet(TenantScopedViewSet):
    permission_map: ClassVar = {"create": Permission.CLOSE}
    summaries: ClassVar = {"create": "Close the organisation for good"}
    serializer_class = ClosingSerializer

    @extend_schema(responses={200: ClosedTenantSerializer})
    def create(self, _request: Request, **_ids: uuid.UUID) -> Response:
        closed = close_by_owner(self.tenant, self.body()["name"])
        return Response(ClosedTenantSerializer(closed).data)
