"""Puts the demo's two adapters in, by the public API as any tenant would: each is called `support`,
and each tenant has its own."""

import io
import zipfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx

from local_stack.services import ServiceError

SLUG: Final = "support"
TENANTS: Final = ("acme", "globex")
FOLDER: Final = Path("gpu_workers/demo_model/adapters")
_TIMEOUT_SECONDS: Final = 30.0


class DemoAdapter:
    """One tenant's adapter, from its folder to a version that answers."""

    def __init__(self, root: Path, demo_env: Mapping[str, str], tenant: str) -> None:
        self._folder = root / FOLDER / f"{tenant}-{SLUG}"
        self._model = demo_env["PENSTOCK_MODEL"]
        self._http = httpx.Client(
            base_url=demo_env["PENSTOCK_URL"],
            headers={"Authorization": f"Bearer {demo_env[f'PENSTOCK_{tenant.upper()}_KEY']}"},
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,
        )
        self._adapters = ""

    def put_in(self) -> bool:
        """Upload it, unless the tenant has one of this name; return whether it may be: a key of an
        earlier run may not make adapters. Raises `ServiceError` where it is refused."""
        [tenant] = self._ask("GET", "/api/v1/me")["tenants"]
        if "adapters:write" not in tenant["scopes"]:
            return False
        self._adapters = f"/api/v1/tenants/{tenant['id']}/adapters"
        if self._find() is None:
            made = self._ask("POST", self._adapters, json={"slug": SLUG, "model": self._model})
            versions = f"{self._adapters}/{made['id']}/versions"
            self._ask("POST", versions, json={"file_id": self._upload()})
        return True

    def answers(self) -> bool:
        """Return whether a version answers. Raises `ServiceError` once all are refused."""
        found = self._find()
        if found is None:
            return True
        versions = self._ask("GET", f"{self._adapters}/{found['id']}/versions")["data"]
        if versions and all(version["state"] == "refused" for version in versions):
            raise ServiceError(f"The demo's adapter was refused: {versions[0]['refusal']}")
        return bool(found["traffic"])

    def close(self) -> None:
        self._http.close()

    def _find(self) -> dict[str, Any] | None:
        found = self._ask("GET", self._adapters)["data"]
        return next((adapter for adapter in found if adapter["slug"] == SLUG), None)

    def _upload(self) -> str:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name in ("adapter_config.json", "adapter_model.safetensors"):
                archive.write(self._folder / name, name)
        upload = self._ask(
            "POST",
            "/v1/uploads",
            json={
                "filename": f"{SLUG}.zip",
                "purpose": "adapter",
                "bytes": packed.tell(),
                "mime_type": "application/zip",
            },
        )
        address = f"/v1/uploads/{upload['id']}"
        part = self._ask("POST", f"{address}/parts", files={"data": packed.getvalue()})
        done = self._ask("POST", f"{address}/complete", json={"part_ids": [part["id"]]})
        file_id: str = done["file"]["id"]
        return file_id

    def _ask(self, method: str, address: str, **body: Any) -> dict[str, Any]:
        return ask(self._http, method, address, **body)


class NotReached(ServiceError):
    """Nothing answers at the demo's address."""


def ask(http: httpx.Client, method: str, address: str, **request: Any) -> dict[str, Any]:
    """Return what the public API answers, as JSON. Raises `ServiceError` where it refuses, and
    `NotReached`."""
    try:
        answer = http.request(method, address, **request)
    except httpx.HTTPError as error:
        kind = NotReached if isinstance(error, httpx.ConnectError) else ServiceError
        raise kind(f"{method} {address} failed: {error}") from None
    if answer.status_code >= HTTPStatus.BAD_REQUEST:
        raise ServiceError(
            f"{method} {address} was refused with {answer.status_code}: {answer.text[:300]}"
        )
    told: dict[str, Any] = answer.json()
    return told
