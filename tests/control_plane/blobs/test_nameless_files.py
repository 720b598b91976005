"""What a form uploads lies on disk under no name: a process that is killed leaves nothing."""

from pathlib import Path
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile, UploadedFile
from django.http import HttpRequest
from django.test import RequestFactory
from pytest_django import Settings

LARGE = bytes(range(256)) * 16 * 1024  # beyond what is kept in memory


def file_of(request: HttpRequest) -> "UploadedFile[Any]":
    """The one of its form."""
    [uploaded] = request.FILES.getlist("data")
    return uploaded


def test_a_large_file_of_a_form_has_no_name_on_disk(settings: Settings, tmp_path: Path) -> None:
    settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path)
    form = {"data": SimpleUploadedFile("adapter.zip", LARGE), "other": "text"}
    request = RequestFactory().post("/somewhere", form)
    uploaded = file_of(request)
    assert list(tmp_path.iterdir()) == []
    assert (uploaded.size, uploaded.name) == (len(LARGE), "adapter.zip")
    assert b"".join(uploaded.chunks()) == LARGE
    assert b"".join(uploaded.chunks()) == LARGE
    assert request.POST["other"] == "text"
    request.close()
    assert uploaded.closed


def test_a_small_file_of_a_form_stays_in_memory(settings: Settings, tmp_path: Path) -> None:
    settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path / "nowhere")
    form = {"data": SimpleUploadedFile("adapter.zip", b"small")}
    assert file_of(RequestFactory().post("/somewhere", form)).read() == b"small"
