"""Puts an adapter of PEFT's in by the public API, as a tenant does who has its folder."""

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import httpx

from gpu_workers.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from tests.support.places import NO_TLS
from tests.support.polling import eventually_sync
from tests.support.stack_addresses import LiveStack


def put_in(stack: LiveStack, key: str, slug: str, folder: Path) -> str:
    """Upload a folder as a new adapter, and return its public name once it answers."""
    with httpx.Client(
        base_url=stack.url,
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
        verify=NO_TLS,
    ) as http:
        (tenant,) = _ok(http.get("/api/v1/me"))["tenants"]
        adapters = f"/api/v1/tenants/{tenant['id']}/adapters"
        made = _ok(http.post(adapters, json={"slug": slug, "model": stack.model}))
        adapter = f"{adapters}/{made['id']}"
        _ok(http.post(f"{adapter}/versions", json={"file_id": _upload(http, folder)}))

        def answers() -> bool:
            (version,) = _ok(http.get(f"{adapter}/versions"))["data"]
            assert version["state"] != "refused", version["refusal"]
            return bool(_ok(http.get(adapter))["traffic"])

        eventually_sync(answers, timeout_seconds=60)
        name: str = _ok(http.get(adapter))["name"]
        return name


def _upload(http: httpx.Client, folder: Path) -> str:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            archive.write(folder / name, name)
    fields = {
        "filename": "adapter.zip",
        "purpose": "adapter",
        "bytes": packed.tell(),
        "mime_type": "application/zip",
    }
    address = f"/v1/uploads/{_ok(http.post('/v1/uploads', json=fields))['id']}"
    data, half = packed.getvalue(), packed.tell() // 2
    parts = [
        _ok(http.post(f"{address}/parts", files={"data": some}))["id"]
        for some in (data[:half], data[half:])
    ]
    asked = {"part_ids": parts, "md5": hashlib.md5(data).hexdigest()}  # noqa: S324

    def is_completed() -> bool:
        # 503 until its MD5 is computed, as official clients know.
        answer = http.post(f"{address}/complete", json=asked)
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200

    eventually_sync(is_completed, timeout_seconds=60)
    file_id: str = _ok(http.get(address))["file"]["id"]
    return file_id


def _ok(answer: httpx.Response) -> dict[str, Any]:
    assert answer.is_success, answer.text
    told: dict[str, Any] = answer.json()
    return told
