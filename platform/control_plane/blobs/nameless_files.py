"""Keeps a form's large files on disk under no name, so that a process that is killed leaves none of
what tenants sent: the kernel frees them. Django's own handler gives each a name."""

import tempfile
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler


class NamelessFileUploadHandler(FileUploadHandler):
    """Takes what the handler of small files, which stands before it, has not taken."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        # Closed with the request, as any file of a form.
        self.file = tempfile.TemporaryFile(  # noqa: SIM115
            dir=settings.FILE_UPLOAD_TEMP_DIR
        )

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        """Write it. Raises OSError where the disk refuses."""
        self.file.write(raw_data)
        return None

    def file_complete(self, file_size: int) -> "UploadedFile[Any]":
        self.file.seek(0)
        return UploadedFile(
            self.file,
            self.file_name,
            self.content_type,
            file_size,
            self.charset,
            self.content_type_extra,
        )

    def upload_interrupted(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
