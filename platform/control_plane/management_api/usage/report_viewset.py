"""What every report is: rows of sums by the groups that were asked for, as pages or as one file."""

import uuid
from collections.abc import Sequence
from datetime import date
from typing import Any, ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.renderers import CsvRenderer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records.csv_files import csv_table, order_by
from control_plane.records.naming import Naming
from tenants.exports import one_export
from tenants.pagination import Order
from tenants.permissions import Permission


class ReportViewSet(mixins.ListModelMixin, TenantScopedViewSet):
    """A subclass says what it is of, of which days, and which columns it groups by."""

    permission_map: ClassVar = {"list": Permission.VIEW_USAGE}
    renderer_classes = [JSONRenderer, CsvRenderer]
    # What stands beside the groups in the key of a row.
    more_key: ClassVar[Sequence[str]] = ()

    @property
    def report(self) -> str:
        raise NotImplementedError

    @property
    def days(self) -> tuple[date, date]:
        raise NotImplementedError

    @property
    def columns(self) -> Sequence[str]:
        raise NotImplementedError

    @property
    def reader_id(self) -> uuid.UUID:
        """Return whose files are counted together: the tenant's."""
        return self.tenant_id

    @property
    def naming(self) -> Naming | None:
        """Return what puts names beside the ids of rows; None where they stay ids."""
        return None

    def get_order(self) -> Order:
        return order_by(f"{self.report} by {' '.join(self.columns)}", self.columns, self.more_key)

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        if not is_csv(self, request):
            return super().list(request, *args, **kwargs)
        serializer: Any = self.get_serializer_class()
        with one_export(self.reader_id):
            content = csv_table(
                self.get_queryset(),
                self.get_order(),
                serializer,
                self.columns,
                self.naming,
            )
        first, last = self.days
        name = f"{self.report}-{first}-{last}.csv"
        return Response(content, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def as_pages_or_csv(rows: Any) -> Any:
    """Describe what a list answers: these rows as JSON, or a file."""
    return extend_schema(
        responses={(200, "application/json"): rows, (200, "text/csv"): OpenApiTypes.STR}
    )


def is_csv(view: Any, request: Request) -> bool:
    """Return whether a file is asked for, by `format` or what the caller accepts; the answer is
    rendered so."""
    wanted = view.query["format"] or request.accepted_renderer.format
    renderer = CsvRenderer() if wanted == "csv" else JSONRenderer()
    request.accepted_renderer, request.accepted_media_type = renderer, renderer.media_type
    return bool(wanted == "csv")
