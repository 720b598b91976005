"""A tenant of the drills that uploads adapters and points their traffic, by the public API."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy
from asgiref.sync import sync_to_async

from gpu_workers.sim.adapters import sim_base
from tests.chaos.load import Target
from tests.chaos.processes import until
from tests.support.adapter_uploads.upload import Arrays, arrays, config, files, safetensors, zipped
from tests.support.places import NO_TLS

SLUG = "support"
MAX_RANK = 64
SMALL_RANK = 4
SIZE = 0.01
VALIDATED_SECONDS = 60.0
# Of what an upload can come to, once for all.
DONE = ("ready", "refused")


def packed(seed: int, *, rank: int = SMALL_RANK, is_flat: bool = False) -> bytes:
    """An adapter as PEFT writes it, zipped, of 0.3 MB at rank 4 and 4.8 MB at rank 64; one that
    `is_flat` has one number for all weights, and so a small archive."""
    base = sim_base("drills", MAX_RANK)
    made: Arrays = arrays(rank=rank, seed=seed, base=base)
    # As small as trained ones: what half precision could not hold would be refused.
    made = {
        name: numpy.full_like(each, SIZE * (1 + seed / 8))
        if is_flat
        else each * each.dtype.type(SIZE)
        for name, each in made.items()
    }
    settings = config(r=rank, lora_alpha=rank)
    return zipped(files(tensors=safetensors(made), settings=settings))


class AdapterTenant:
    """Speaks to the control plane with one key. Calls answer with what came; `add_version` and the
    like raise where they are refused."""

    def __init__(self, url: str, key: str, tenant_id: str) -> None:
        self.key = key
        self.tenant_id = tenant_id
        self.name = self.adapter_id = ""
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=120,
            verify=NO_TLS,
            trust_env=False,
        )

    def target(self, version: int | None = None) -> Target:
        return Target(self.key, self.name if version is None else f"{self.name}@{version}")

    async def is_known(self) -> bool:
        """Whether the gate before uploads knows the key, which it learns from the snapshot."""
        answer = await self._http.get(f"/v1/uploads/upload_{uuid.UUID(int=0).hex}")
        return answer.status_code == httpx.codes.NOT_FOUND

    async def add_adapter(self, model: str) -> None:
        made = await self._post(self._adapters, {"slug": SLUG, "model": model})
        self.adapter_id, self.name = made["id"], made["name"]

    async def begin(self, size: int) -> str:
        new = {"filename": "adapter.zip", "purpose": "adapter", "mime_type": "application/zip"}
        upload: str = (await self._post("/v1/uploads", {**new, "bytes": size}))["id"]
        return upload

    async def send(self, upload_id: str, data: bytes) -> httpx.Response:
        """Raises `httpx.TransportError`."""
        return await self._http.post(f"/v1/uploads/{upload_id}/parts", files={"data": data})

    async def send_slowly(self, upload_id: str, data: bytes) -> None:
        """Send a part whose last byte does not come. Raises `httpx.TransportError`."""
        boundary = b"drills"
        head = b'--%s\r\nContent-Disposition: form-data; name="data"; filename="d"\r\n\r\n'
        form = head % boundary + data + b"\r\n--%s--\r\n" % boundary

        async def pieces() -> AsyncIterator[bytes]:
            yield form[:-1]
            await asyncio.sleep(30)
            yield form[-1:]

        headers = {
            "content-type": f"multipart/form-data; boundary={boundary.decode()}",
            "content-length": str(len(form)),
        }
        path = f"/v1/uploads/{upload_id}/parts"
        await self._http.post(path, content=pieces(), headers=headers)

    async def parts(self, upload_id: str) -> list[str]:
        """Those that have come."""
        answer = await self._http.get(f"/v1/uploads/{upload_id}")
        return [part["id"] for part in _checked(answer)["parts"]]

    async def complete(self, upload_id: str, part_ids: list[str]) -> str:
        """Return the file's id."""
        done = await self._post(f"/v1/uploads/{upload_id}/complete", {"part_ids": part_ids})
        file_id: str = done["file"]["id"]
        return file_id

    async def upload(self, data: bytes) -> str:
        upload_id = await self.begin(len(data))
        part = _checked(await self.send(upload_id, data))
        return await self.complete(upload_id, [part["id"]])

    async def add_version(self, data: bytes) -> int:
        """Return its number, before it was looked at."""
        return await self.add_version_of(await self.upload(data))

    async def add_version_of(self, file_id: str) -> int:
        path = f"{self._adapters}/{self.adapter_id}/versions"
        number: int = (await self._post(path, {"file_id": file_id}))["number"]
        return number

    async def add_ready_version(self, data: bytes) -> int:
        number = await self.add_version(data)
        await self.until_ready(number)
        return number

    async def until_ready(self, number: int, seconds: float = VALIDATED_SECONDS) -> float:
        """Return how long it took. Raises `RuntimeError` where it is refused."""
        since = asyncio.get_running_loop().time()
        await self.until_done(number, seconds)
        state, code = await self.state(number)
        if state != "ready":
            raise RuntimeError(f"{self.name}@{number} is {state}: {code}")
        return asyncio.get_running_loop().time() - since

    async def until_done(self, number: int, seconds: float = VALIDATED_SECONDS) -> float:
        async def is_done() -> bool:
            return (await self.state(number))[0] in DONE

        return await until(is_done, seconds)

    async def state(self, number: int) -> tuple[str, str]:
        """A version's state and, if it was refused, the code of why."""
        return await _state(uuid.UUID(self.adapter_id), number)

    async def opaque_name(self, number: int) -> str:
        return await _opaque_name(uuid.UUID(self.adapter_id), number)

    async def point(self, shares: dict[int, int]) -> None:
        traffic = [{"version": number, "permille": share} for number, share in shares.items()]
        path = f"{self._adapters}/{self.adapter_id}"
        _checked(await self._http.patch(path, json={"traffic": traffic}))

    async def close(self) -> None:
        await _delete_adapters(self.tenant_id)
        await self._http.aclose()

    @property
    def _adapters(self) -> str:
        return f"/api/v1/tenants/{self.tenant_id}/adapters"

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return _checked(await self._http.post(path, json=body))


def code_of(answer: httpx.Response) -> str:
    """The typed code of a refusal; "untyped" where it has none."""
    try:
        return str(answer.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return "untyped"


def _checked(answer: httpx.Response) -> dict[str, Any]:
    if answer.status_code >= httpx.codes.BAD_REQUEST:
        raise RuntimeError(
            f"{answer.request.method} {answer.request.url.path}: {answer.status_code} "
            f"{answer.text[:300]}"
        )
    told: dict[str, Any] = answer.json()
    return told


@sync_to_async
def _delete_adapters(tenant_id: str) -> None:
    """The store goes with the stack, and fsck of the next stack's drills reads all records."""
    from inference.models import Adapter
    from tenants.isolation.scoping import operator_scope

    with operator_scope("chaos drills"):
        Adapter.objects.filter(tenant=uuid.UUID(tenant_id)).delete()


@sync_to_async
def _state(adapter_id: uuid.UUID, number: int) -> tuple[str, str]:
    from inference.models import AdapterVersion
    from tenants.isolation.scoping import operator_scope

    with operator_scope("chaos drills"):
        version = AdapterVersion.objects.get(adapter=adapter_id, number=number)
        return version.state, version.refusal_code


@sync_to_async
def _opaque_name(adapter_id: uuid.UUID, number: int) -> str:
    from inference.models import AdapterVersion
    from tenants.isolation.scoping import operator_scope

    with operator_scope("chaos drills"):
        return AdapterVersion.objects.get(adapter=adapter_id, number=number).opaque_name
