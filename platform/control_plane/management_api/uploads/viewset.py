"""POST /v1/uploads and what follows; who asks is an API key, and the tenant is the key's.

POST  /v1/uploads                       {"bytes", "filename", "mime_type", "purpose"}
GET   /v1/uploads/<upload>              with the parts that have come
POST  /v1/uploads/<upload>/parts        multipart/form-data, the file `data`
POST  /v1/uploads/<upload>/complete     {"part_ids": [...], "md5"}
POST  /v1/uploads/<upload>/cancel
"""

import uuid
from typing import Any, ClassVar, Final

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.authentication import ApiKeyAuthentication
from control_plane.management_api.callers import KeyBearer
from control_plane.management_api.serializers import Nothing
from control_plane.management_api.uploads.parsing import PartParser, check_form_headers, file_of
from control_plane.management_api.uploads.serializers import (
    CompleteUploadSerializer,
    NewUploadSerializer,
    OneUploadSerializer,
    PartSerializer,
    UploadSerializer,
)
from control_plane.management_api.viewsets import TenantScopedViewSet
from inference.models.upload import UploadPurpose
from inference.uploads.ids import parse_part_id, parse_upload_id
from inference.uploads.uploading import (
    NewUpload,
    add_part,
    cancel_upload,
    complete_upload,
    create_upload,
    upload_of,
)
from tenants.permissions import Permission

_PART_FORM: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "format": "binary"}},
}


class UploadViewSet(TenantScopedViewSet):
    authentication_classes = [ApiKeyAuthentication]
    http_method_names = ["get", "head", "post"]
    permission_map: ClassVar = dict.fromkeys(
        ("create", "retrieve", "parts", "complete", "cancel"), Permission.WRITE_ADAPTERS
    )
    unscoped: ClassVar = frozenset({"parts", "complete"})
    summaries: ClassVar = {
        "create": "Begin an upload",
        "retrieve": "Show an upload",
        "parts": "Add a part to an upload",
        "complete": "Complete an upload",
        "cancel": "Cancel an upload",
    }
    serializer_classes: ClassVar = {
        "create": NewUploadSerializer,
        "retrieve": OneUploadSerializer,
        "complete": CompleteUploadSerializer,
        "cancel": Nothing,
    }
    lookup_url_kwarg = "upload_id"
    lookup_value_converter = "str"

    @property
    def tenant_id(self) -> uuid.UUID:
        """Return the tenant of the key: there is none in the path."""
        caller = self.caller
        assert isinstance(caller, KeyBearer)  # the one authentication  # noqa: S101
        return caller.key.tenant_id

    def perform_authentication(self, request: Request) -> None:
        if self.action != "parts":
            super().perform_authentication(request)
            return
        check_form_headers(request)
        request.user  # noqa: B018 - as DRF's own

    @extend_schema(responses={200: UploadSerializer})
    def create(self, _request: Request) -> Response:
        given = self.body()
        new = NewUpload(
            filename=given["filename"],
            mime_type=given["mime_type"],
            purpose=UploadPurpose(given["purpose"]),
            size_bytes=given["bytes"],
        )
        return Response(UploadSerializer(create_upload(self.tenant, new)).data)

    @extend_schema(responses={200: OneUploadSerializer})
    def retrieve(self, _request: Request, *, upload_id: str) -> Response:
        upload = upload_of(self.tenant.id, parse_upload_id(upload_id))
        return Response(OneUploadSerializer(upload).data)

    @extend_schema(
        request={"multipart/form-data": _PART_FORM},
        responses={200: PartSerializer},
    )
    @action(detail=True, methods=["post"], parser_classes=[PartParser])
    def parts(self, request: Request, *, upload_id: str) -> Response:
        parsed = parse_upload_id(upload_id)
        part = add_part(self.tenant, parsed, file_of(request).chunks())
        return Response(PartSerializer(part).data)

    @extend_schema(responses={200: UploadSerializer})
    @action(detail=True, methods=["post"])
    def complete(self, _request: Request, *, upload_id: str) -> Response:
        parsed, given = parse_upload_id(upload_id), self.body()
        part_ids = [parse_part_id(each) for each in given["part_ids"]]
        upload = complete_upload(self.tenant, parsed, part_ids, given.get("md5"))
        return Response(UploadSerializer(upload).data)

    @extend_schema(responses={200: UploadSerializer})
    @action(detail=True, methods=["post"])
    def cancel(self, _request: Request, *, upload_id: str) -> Response:
        self.body()
        upload = cancel_upload(self.tenant, parse_upload_id(upload_id))
        return Response(UploadSerializer(upload).data)
