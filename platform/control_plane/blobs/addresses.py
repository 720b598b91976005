"""GET /blobs/<path>: a blob of a folder, for whoever has its signed address. S3 answers for its
own."""

import re
from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_GET

from inference.blobs.errors import NoSuchBlob
from inference.blobs.opening import blob_store, folder_signer
from inference.blobs.store import BadPath
from inference.errors import Forbidden, InferenceError, NotFound
from inference.openai_api.responses import error_json

_RANGE: Final = re.compile(r"bytes=([0-9]{1,15})-([0-9]{0,15})")


@require_GET
def blob(request: HttpRequest, path: str) -> HttpResponseBase:
    """Answer with the blob, or the one range that is asked for."""
    expires, signature = (request.GET.get(name, "") for name in ("expires", "signature"))
    if not folder_signer().is_good(path, expires, signature):
        return _refusal(
            Forbidden(
                "This address is not one of ours, or has expired: ask for a new one.",
                code="bad_address",
            )
        )
    store = blob_store()
    try:
        found = store.look(path)
    except (NoSuchBlob, BadPath):
        return _refusal(NotFound("There is nothing at this address any more."))
    except InferenceError as error:
        return _refusal(error)
    size, etag = found.size_bytes, '"' + found.etag.strip('"') + '"'
    first, end = _asked_for(request, size, etag)
    if first >= end:
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
    answer = StreamingHttpResponse(
        store.stream(found, first, end),
        status=200 if end - first == size else 206,
        content_type="application/octet-stream",
    )
    answer["Content-Length"] = str(end - first)
    answer["Accept-Ranges"] = "bytes"
    answer["ETag"] = etag
    answer["Cache-Control"] = "private, no-store"
    answer["X-Content-Type-Options"] = "nosniff"
    if answer.status_code == 206:
        answer["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    return answer


def _asked_for(request: HttpRequest, size: int, etag: str) -> tuple[int, int]:
    """Return the first byte and the end of what is asked for; whatever is not one simple range, or
    is one of other bytes than these, is no range (RFC 9110, 13.1.5 and 14.2)."""
    asked = _RANGE.fullmatch(request.headers.get("Range", ""))
    if asked is None or request.headers.get("If-Range", etag) != etag:
        return 0, size
    last = int(asked[2]) if asked[2] else size - 1
    return int(asked[1]), min(last + 1, size)


def _refusal(error: InferenceError) -> HttpResponse:
    wire = error.to_wire()
    answer = HttpResponse(error_json(wire), status=wire.status, content_type="application/json")
    answer["Cache-Control"] = "no-store"
    if wire.retry_after_seconds is not None:
        answer["Retry-After"] = str(wire.retry_after_seconds)
    return answer
