"""Files to keep. What renders them gets their bytes and passes them on."""

from typing import Any

from rest_framework.renderers import BaseRenderer


class PdfRenderer(BaseRenderer):
    media_type = "application/pdf"
    format = "pdf"
    charset: str | None = None
    render_style = "binary"

    def render(self, data: Any, *_: Any, **__: Any) -> bytes:
        return bytes(data)


class CsvRenderer(PdfRenderer):
    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"


class PrometheusRenderer(PdfRenderer):
    media_type = "text/plain"
    format = "prometheus"
    charset = "utf-8"


class JsonLinesRenderer(PdfRenderer):
    media_type = "application/x-ndjson"
    format = "jsonl"
    charset = "utf-8"
