"""A file in parts, as the pages' script sends it: begun, its parts, completed. What comes of it is
the `file_id` of a form. These are /v1/uploads for a session: the same verbs, bounds, refusals."""

import uuid
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, ClassVar, Final

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse

from control_plane.dashboard.forms import PageForm
from control_plane.dashboard.page import TenantPage, UnscopedWork
from control_plane.dashboard.pages.adapters.files import begin
from control_plane.web.pages import private
from inference.errors import InferenceError, LengthRequired
from inference.models import Upload
from inference.uploads.bounds import MAX_PARTS
from inference.uploads.errors import NoSuchUpload
from inference.uploads.ids import parse_part_id
from inference.uploads.uploading import add_part, complete_upload, upload_of
from tenants.permissions import Permission

# Small enough to show how far it is, and to send again.
PART_BYTES: Final = 8 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 2**53 - 1


class BeginForm(PageForm):
    """What is to come, and the id of a file in whose place it comes."""

    filename = forms.CharField(max_length=1000)
    bytes = forms.IntegerField(min_value=1, max_value=_MOST_BYTES)
    replaces = forms.CharField(required=False, max_length=60)


class _UploadPage(TenantPage):
    permissions: ClassVar = {"POST": Permission.WRITE_ADAPTERS}
    section = "adapters"


class BeginUploadPage(_UploadPage):
    def post(self, request: HttpRequest) -> HttpResponse:
        form = BeginForm(request.POST)
        if not form.is_valid():
            problems = [str(text) for errors in form.errors.values() for text in errors]
            return _answer({"message": " ".join(problems)}, status=HTTPStatus.UNPROCESSABLE_ENTITY)
        given = form.cleaned_data
        return _answered(
            lambda: self._begun(
                begin(
                    self.tenant,
                    filename=given["filename"],
                    size_bytes=given["bytes"],
                    replaces=given["replaces"],
                )
            )
        )

    def _begun(self, upload: Upload) -> dict[str, Any]:
        args = [self.tenant.id, upload.id]
        return {
            "file_id": upload.file_id,
            "part_bytes": PART_BYTES,
            "parts": reverse("dashboard:upload-part", args=args),
            "complete": reverse("dashboard:complete-upload", args=args),
        }


class _LongPage(_UploadPage):
    """Checks in the tenant's scope who asks for what, and calls `work` in none."""

    def post(self, request: HttpRequest, pending_id: uuid.UUID) -> UnscopedWork:
        try:
            upload_of(self.tenant.id, pending_id)
        except NoSuchUpload:
            raise Http404 from None
        return UnscopedWork(lambda: _answered(lambda: self.work(request, pending_id)))

    def work(self, request: HttpRequest, pending_id: uuid.UUID) -> dict[str, Any]:
        raise NotImplementedError


class AddPartPage(_LongPage):
    """Takes a part's bytes as the body."""

    def work(self, request: HttpRequest, pending_id: uuid.UUID) -> dict[str, Any]:
        if not request.META.get("CONTENT_LENGTH"):
            raise LengthRequired("Send the body's length in the header Content-Length.")
        return {"id": str(add_part(self.tenant, pending_id, _chunks(request)))}


class CompleteUploadPage(_LongPage):
    def work(self, request: HttpRequest, pending_id: uuid.UUID) -> dict[str, Any]:
        names = request.POST.getlist("part")[: MAX_PARTS + 1]
        part_ids = [parse_part_id(name) for name in names]
        return {"file_id": complete_upload(self.tenant, pending_id, part_ids).file_id}


def _answered(work: Callable[[], dict[str, Any]]) -> HttpResponse:
    try:
        return _answer(work())
    except InferenceError as error:
        wire = error.to_wire()
        return _answer({"message": wire.message, "code": wire.code}, status=wire.status)


def _answer(content: dict[str, Any], *, status: int = 200) -> HttpResponse:
    return private(JsonResponse(content, status=status))


def _chunks(request: HttpRequest) -> Iterator[bytes]:
    while chunk := request.read(_CHUNK_BYTES):
        yield chunk
