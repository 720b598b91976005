"""Files that a page offers. Like pages they are one person's, and stay out of every cache."""

from collections.abc import AsyncIterable

from django.http import HttpResponse, StreamingHttpResponse
from django.utils.http import content_disposition_header


def attachment(content: bytes, name: str, content_type: str) -> HttpResponse:
    """Answer with a file that the browser stores under this name."""
    return HttpResponse(content, headers=_headers(name, content_type))


def streamed(content: AsyncIterable[bytes], name: str, content_type: str) -> StreamingHttpResponse:
    """Answer with a file whose parts come one after the other, none of which waits in memory."""
    return StreamingHttpResponse(content, headers=_headers(name, content_type))


def _headers(name: str, content_type: str) -> dict[str, str]:
    return {
        "Content-Type": content_type,
        "Content-Disposition": content_disposition_header(True, name) or "attachment",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
