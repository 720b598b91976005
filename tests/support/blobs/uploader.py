"""A client of /v1/uploads."""

from dataclasses import dataclass
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from inference.blobs.opening import blob_store


@dataclass(frozen=True, kw_only=True)
class Uploader:
    """Speaks to /v1/uploads with one key."""

    key: str
    http: Client

    def post(self, path: str, body: object = None) -> Any:
        return self.http.post(
            f"/v1/uploads{path}", body, content_type="application/json", headers=self.headers
        )

    def get(self, path: str) -> Any:
        return self.http.get(f"/v1/uploads{path}", headers=self.headers)

    def begin(self, size: int, **fields: object) -> str:
        answer = self.post("", a_new_upload(size, **fields))
        assert answer.status_code == 200, answer.content
        upload_id: str = answer.json()["id"]
        return upload_id

    def send(self, upload_id: str, data: bytes, name: str = "upload") -> Any:
        form = {"data": SimpleUploadedFile(name, data)}
        return self.http.post(f"/v1/uploads/{upload_id}/parts", form, headers=self.headers)

    def part(self, upload_id: str, data: bytes) -> str:
        answer = self.send(upload_id, data)
        assert answer.status_code == 200, answer.content
        part_id: str = answer.json()["id"]
        return part_id

    def complete(self, upload_id: str, *part_ids: str, **fields: object) -> Any:
        return self.post(f"/{upload_id}/complete", {"part_ids": list(part_ids), **fields})

    def cancel(self, upload_id: str) -> Any:
        return self.post(f"/{upload_id}/cancel")

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}


def a_new_upload(size: int, **fields: object) -> dict[str, object]:
    return {
        "bytes": size,
        "filename": "adapter.zip",
        "mime_type": "application/zip",
        "purpose": "adapter",
        **fields,
    }


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def stored() -> int:
    """How many blobs there are."""
    return len(list(blob_store().list()))
