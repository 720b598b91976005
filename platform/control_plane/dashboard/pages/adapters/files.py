"""Files that pages take: in one form without JavaScript, else in parts. Either way they become
files of `inference.uploads`, by its verbs, and the form names one then: what else is wrong with the
form does not cost the upload."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponseBase

from control_plane.dashboard.forms import PageForm
from control_plane.dashboard.page import UnscopedWork
from control_plane.dashboard.pages.adapters.adapters import ChangingPage
from inference.errors import InferenceError
from inference.models import Upload
from inference.models.upload import MAX_FILENAME_CHARACTERS, UploadPurpose, UploadStatus
from inference.uploads.errors import NoSuchUpload
from inference.uploads.files import waiting_file
from inference.uploads.ids import parse_file_id
from inference.uploads.uploading import (
    NewUpload,
    add_part,
    cancel_upload,
    complete_upload,
    create_upload,
    end_upload,
    upload_of,
)
from tenants.isolation.scoping import tenant_scope
from tenants.models import Tenant

FILE: Final = "file"
FILE_ID: Final = "file_id"
# What a browser says of a file is its own idea.
_MIME_TYPE: Final = "application/octet-stream"

_Result = TypeVar("_Result")


class FileForm(PageForm):
    """A file, or one that came before: `file_id` names it."""

    file = forms.FileField(
        required=False,
        max_length=MAX_FILENAME_CHARACTERS,
        widget=forms.FileInput(attrs={"accept": ".zip,.tar,.tgz,.gz"}),
        help_text="The folder that PEFT's save_pretrained wrote, as one zip or tar: "
        "adapter_config.json and adapter_model.safetensors.",
    )
    file_id = forms.CharField(required=False, max_length=60, widget=forms.HiddenInput)

    def __init__(self, *args: Any, tenant: Tenant, **more: Any) -> None:
        super().__init__(*args, **more)
        self.tenant = tenant
        self.fields[FILE].is_optional = False  # type: ignore[attr-defined]

    def clean_file_id(self) -> str:
        """Keep only what is a file of this tenant's, and not used yet; beside another file it is
        replaced."""
        file_id: str = self.cleaned_data[FILE_ID]
        is_asked = bool(file_id) and not self.cleaned_data.get(FILE)
        if is_asked and waiting_file(self.tenant, file_id, UploadPurpose.ADAPTER) is None:
            self.add_error(FILE, "The uploaded file is no longer there; choose it again.")
            return ""
        return file_id

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        is_there = cleaned.get(FILE) or cleaned.get(FILE_ID)
        if not is_there and FILE not in self.errors:
            self.add_error(FILE, ValidationError("Choose a file.", code="required"))
        return cleaned

    def perform(self, verb: Callable[[], _Result]) -> _Result | None:
        """Do as `PageForm` does, and say what is wrong with the file beside it."""
        try:
            return super().perform(verb)
        except InferenceError as error:
            self.add_error(FILE, error.message)
        return None

    @property
    def kept(self) -> Upload | None:
        """Return the file that came before, which need not be sent again."""
        text = str(self.data.get(FILE_ID, "")) if self.is_bound else ""
        return waiting_file(self.tenant, text, UploadPurpose.ADAPTER) if text else None


class FilePage(ChangingPage):
    """A page whose form may hold a file. It is stored between two visits of `post`, in no scope:
    the first begins an upload, the second finds the form with its `file_id`."""

    _stored: dict[str, str] | None = None

    def form_of(self, request: HttpRequest, kind: type[FileForm], **more: Any) -> FileForm:
        """Return the form that was posted, as it was looked at last."""
        if self._stored is None:
            return kind(request.POST, request.FILES, tenant=self.tenant, **more)
        data = request.POST.copy()
        data[FILE_ID] = self._stored.get(FILE_ID, "")
        form = kind(data, tenant=self.tenant, **more)
        if "problem" in self._stored:
            form.errors.pop(FILE, None)
            form.add_error(FILE, self._stored["problem"])
        return form

    def upload_first(self, form: FileForm) -> UnscopedWork | None:
        """Begin the upload of the form's file, and return what stores it; None where nothing is to
        be stored."""
        form.full_clean()
        file: UploadedFile[bytes] | None = form.cleaned_data.get(FILE)
        if file is None or self._stored is not None:
            return None
        begun = form.perform(
            lambda: begin(
                self.tenant,
                filename=file.name or "",
                size_bytes=file.size or 0,
                replaces=form.cleaned_data.get(FILE_ID, ""),
            )
        )
        return None if begun is None else UnscopedWork(lambda: self._store(begun, file.chunks()))

    def _store(self, begun: Upload, chunks: Iterable[bytes]) -> HttpResponseBase:
        self._stored = _store(self.tenant, begun, chunks)
        return self.again()


def begin(tenant: Tenant, *, filename: str, size_bytes: int, replaces: str) -> Upload:
    """Begin the upload of an adapter's file, within the tenant's scope, in place of one that nobody
    will use: unfinished, or not taken. Raises what `create_upload` does."""
    if replaces:
        _drop(tenant, replaces)
    new = NewUpload(
        filename=shown_name(filename),
        mime_type=_MIME_TYPE,
        purpose=UploadPurpose.ADAPTER,
        size_bytes=size_bytes,
    )
    return create_upload(tenant, new)


def shown_name(filename: str) -> str:
    """Return the name of a file without its folder, and without what is no text."""
    last = filename.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(filter(str.isprintable, last))[:MAX_FILENAME_CHARACTERS] or "adapter"


def _drop(tenant: Tenant, file_id: str) -> None:
    try:
        upload = upload_of(tenant.id, parse_file_id(file_id), is_locked=True)
    except NoSuchUpload:
        return
    if upload.purpose != UploadPurpose.ADAPTER or upload.taken_at is not None:
        return
    if upload.status == UploadStatus.PENDING:
        end_upload(upload, UploadStatus.CANCELLED)
    elif upload.status == UploadStatus.COMPLETED:
        end_upload(upload, UploadStatus.EXPIRED)


def _store(tenant: Tenant, upload: Upload, chunks: Iterable[bytes]) -> dict[str, str]:
    """Store a file as an upload's one part. Return its id, or the problem."""
    try:
        part = add_part(tenant, upload.id, chunks)
        return {FILE_ID: complete_upload(tenant, upload.id, [part.id]).file_id}
    except InferenceError as error:
        with tenant_scope(tenant.id):
            cancel_upload(tenant, upload.id)
        return {"problem": error.message}
