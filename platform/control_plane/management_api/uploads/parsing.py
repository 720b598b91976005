"""The one body of the API that is a form: a part of an upload, as its file `data`."""

from collections.abc import Mapping
from typing import IO, Any, Final

from django.core.files.uploadedfile import UploadedFile
from rest_framework.exceptions import ParseError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request

from control_plane.management_api.errors import UnsupportedMediaType
from inference.blobs.errors import room_on_disk
from inference.errors import InvalidRequest, LengthRequired

_DATA: Final = "data"


class PartParser(MultiPartParser):
    """DRF's, whose complaints are refusals of ours."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Raises `InvalidRequest` and `DiskFull`."""
        try:
            with room_on_disk():
                return super().parse(stream, media_type, parser_context)
        except ParseError as error:
            raise InvalidRequest(
                f"The body must be a form with the file 'data': {error}."
            ) from None


def check_form_headers(request: Request) -> None:
    """Raises `UnsupportedMediaType` and `LengthRequired`, before anything reads the body."""
    if request._request.content_type != PartParser.media_type:
        raise UnsupportedMediaType("Send the part as multipart/form-data, as its file 'data'.")
    if not request.META.get("CONTENT_LENGTH"):
        raise LengthRequired("Send the body's length in the header Content-Length.")


def file_of(request: Request) -> "UploadedFile[Any]":
    """Return the one file of the form. Raises `InvalidRequest`."""
    unknown = next((name for name in request.data if name != _DATA), None)
    if unknown is not None:
        shown = unknown[:80].encode(errors="replace").decode()
        raise InvalidRequest(f"Unknown parameter {shown!r}.", param=shown, code="unknown_field")
    files = request.FILES.getlist(_DATA)
    if len(files) != 1:
        raise InvalidRequest(
            f"A part is one file, 'data'; this form has {len(files)}.",
            param=_DATA,
            code="missing_field" if not files else None,
        )
    found: UploadedFile[Any] = files[0]
    return found
