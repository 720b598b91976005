"""GET schema: the document itself. Anybody may read it: it tells no more than the code does."""

from typing import Any, ClassVar, Final

from django.utils.http import parse_etags
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.permissions import AllowAny
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.openapi.document import FORMS, file
from control_plane.management_api.renderers import PdfRenderer
from control_plane.management_api.serializers import StrictSerializer
from control_plane.management_api.viewsets import ManagementViewSet
from control_plane.records import fields

_CACHE_SECONDS: Final = 300


class YamlRenderer(PdfRenderer):
    media_type = "application/vnd.oai.openapi"
    format = "yaml"
    charset = "utf-8"


class PlainYamlRenderer(YamlRenderer):
    media_type = "application/yaml"


class OpenApiJsonRenderer(PdfRenderer):
    media_type = "application/vnd.oai.openapi+json"
    format = "json"


class JsonRenderer(OpenApiJsonRenderer):
    media_type = "application/json"


class FormQuery(StrictSerializer):
    """`format` stands above the Accept header, for browsers."""

    format = fields.ChoiceField(FORMS, default=None)


class SchemaViewSet(ManagementViewSet):
    """YAML unless something else is asked for, as drf-spectacular's own."""

    authentication_classes = []
    permission_classes = [AllowAny]
    renderer_classes = [YamlRenderer, PlainYamlRenderer, OpenApiJsonRenderer, JsonRenderer]
    query_serializers: ClassVar = {"retrieve": FormQuery}
    summaries: ClassVar = {"retrieve": "Read this document"}

    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[BaseRenderer, str]:
        match request.query_params.get("format"):
            case "json":
                return JsonRenderer(), JsonRenderer.media_type
            case "yaml":
                return PlainYamlRenderer(), PlainYamlRenderer.media_type
            case _:
                return super().perform_content_negotiation(request, force)

    @extend_schema(
        description="Takes no credential: it holds nothing that is anybody's own.",
        responses={
            (200, each.media_type): OpenApiTypes.OBJECT
            for each in (YamlRenderer, PlainYamlRenderer, OpenApiJsonRenderer, JsonRenderer)
        }
        | {304: None},
        parameters=[OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER)],
    )
    def retrieve(self, request: Request) -> Response:
        found = file(request.accepted_renderer.format)
        headers = {"ETag": found.etag, "Vary": "Accept"}
        if found.etag in parse_etags(request.META.get("HTTP_IF_NONE_MATCH", "")):
            return Response(b"", status=status.HTTP_304_NOT_MODIFIED, headers=headers)
        return Response(found.content, headers=headers)

    def finalize_response(
        self, request: Request, response: Any, *args: Any, **kwargs: Any
    ) -> Response:
        answer = super().finalize_response(request, response, *args, **kwargs)
        if answer.status_code in {status.HTTP_200_OK, status.HTTP_304_NOT_MODIFIED}:
            answer["Cache-Control"] = f"public, max-age={_CACHE_SECONDS}"
        return answer
