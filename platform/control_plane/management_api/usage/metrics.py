"""GET metrics: a tenant's own figures for its own Prometheus, sums of the month (UTC) so far."""

from typing import Any, ClassVar, Final

from django.core.cache import cache
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.renderers import PrometheusRenderer
from control_plane.management_api.viewsets import TenantScopedViewSet
from inference.operations.tenant_metrics import tenant_metrics
from tenants.permissions import Permission

# Sums of a large tenant's month take a while; whoever scrapes more often reads the same again.
_CACHE_SECONDS: Final = 10


class TenantMetricsViewSet(TenantScopedViewSet):
    summaries: ClassVar = {"scrape": "Scrape the metrics"}
    permission_map: ClassVar = {"scrape": Permission.VIEW_USAGE}
    renderer_classes = [PrometheusRenderer]

    @extend_schema(responses={(200, PrometheusRenderer.media_type): OpenApiTypes.STR})
    def scrape(self, _request: Request, *_: Any, **__: Any) -> Response:
        key = f"tenant-metrics:{self.tenant_id}"
        body = cache.get(key)
        if body is None:
            body = tenant_metrics(self.tenant)
            cache.set(key, body, _CACHE_SECONDS)
        return Response(body, content_type=CONTENT_TYPE_LATEST)
