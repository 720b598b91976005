"""The policy snapshot as one gateway process sees it: rows of Redis, kept until they change.

The version is read four times a second, so a change reaches every process within `POLL_SECONDS`,
and a busy key costs no look-up in between. With a version comes what it changed: the rest is kept.
Where that is not known of every version since the last one, all is read anew.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import codec, keys, stream_fields
from gpu_workers.protocol.policy import (
    AdapterList,
    AdapterPolicy,
    ApiKeyPolicy,
    Caller,
    ModelPolicy,
    PolicyDelta,
    TenantPolicy,
)
from inference.background import Background
from inference.errors import PolicyLost, PolicyUnavailable

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")

POLL_SECONDS: Final = 0.25
_ROWS_KEPT: Final = 50_000
_DELTAS_READ: Final = 64


class PolicySnapshot:
    """Follows the snapshot of one Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._background = Background()
        self._version: bytes | None = None
        self._has_version = asyncio.Event()
        self._was_there = False
        self._keys: dict[str, ApiKeyPolicy] = {}
        self._tenants: dict[str, TenantPolicy] = {}
        self._adapters: dict[str, AdapterPolicy] = {}
        self._adapter_lists: dict[str, AdapterList] = {}
        self._models: dict[str, ModelPolicy] | None = None

    async def start(self) -> None:
        """Read the version and follow it from now on."""
        try:
            await self._read_version()
        except (RedisError, OSError) as error:
            _log.warning("gateway_starts_without_policy", reason=repr(error))
        self._background.supervise(self._follow_version, name="policy-version")

    async def stop(self) -> None:
        await self._background.stop()

    @property
    def version(self) -> bytes | None:
        """Return the snapshot's version, None while there is none."""
        return self._version

    def require(self) -> bytes:
        """Return the version. Raises `PolicyUnavailable` while there is no snapshot."""
        if self._version is None:
            error = PolicyLost if self._was_there else PolicyUnavailable
            raise error(
                "The service cannot check API keys yet; its control plane is starting.",
                retry_after_seconds=1,
            )
        return self._version

    async def wait(self) -> None:
        """Wait until there is a snapshot."""
        await self._has_version.wait()

    async def is_in_redis(self) -> bool:
        """Return whether the snapshot is there at this moment, whatever is kept of it here."""
        return bool(await self._redis.exists(keys.policy_version()))

    async def api_key(self, public_id: str) -> ApiKeyPolicy | None:
        return await self._row(self._keys, keys.policy_api_keys(), public_id, codec.decode_api_key)

    async def tenant(self, tenant_id: str) -> TenantPolicy | None:
        return await self._row(self._tenants, keys.policy_tenants(), tenant_id, codec.decode_tenant)

    async def adapter(self, name: str) -> AdapterPolicy | None:
        """Return the adapter of this public name. Whose it is the caller compares."""
        return await self._row(self._adapters, keys.policy_adapters(), name, codec.decode_adapter)

    async def adapters_of(self, slug: str) -> list[AdapterPolicy]:
        """Return the adapters of the tenant with this slug, in the order of names."""
        key = keys.policy_adapters()
        has = await self._row(self._adapter_lists, key, f"{slug}/", codec.decode_adapter_list)
        if has is None:
            return []
        version = self._version
        missing = [name for name in has.names if name not in self._adapters]
        rows = await self._redis.hmget(key, missing) if missing else []
        read = {
            name: codec.decode_adapter(row)
            for name, row in zip(missing, rows, strict=True)
            if isinstance(row, bytes)
        }
        found = [read.get(name) or self._adapters.get(name) for name in has.names]
        if version == self._version:
            for name, row in read.items():
                _keep(self._adapters, name, row)
        return [adapter for adapter in found if adapter is not None]

    @property
    def models_in_memory(self) -> Mapping[str, ModelPolicy]:
        """Return the models as far as they are kept here; none where they have to be read."""
        return self._models or {}

    def adapter_in_memory(self, name: str) -> AdapterPolicy | None:
        return self._adapters.get(name)

    def holds(self, caller: Caller) -> bool:
        """Return whether a caller was made of what the snapshot says now, as far as it is kept."""
        return (
            self._version is not None
            and self._keys.get(caller.public_key_id) is caller.key
            and self._tenants.get(caller.tenant_id) is caller.tenant
        )

    async def models(self) -> dict[str, ModelPolicy]:
        """Return every served model by its name, in the order of names."""
        if self._models is not None:
            return self._models
        version = self.require()
        rows = await self._redis.hvals(keys.policy_models())
        policies = [codec.decode_model(row) for row in rows if isinstance(row, bytes)]
        models = {model.name: model for model in sorted(policies, key=lambda each: each.name)}
        if version == self._version:
            self._models = models
        return models

    async def _row(
        self, kept: dict[str, _T], key: str, field: str, decode: Callable[[bytes], _T]
    ) -> _T | None:
        row = kept.get(field)
        if row is not None:
            return row
        version = self._version
        data = await self._redis.hget(key, field)
        if not isinstance(data, bytes):
            # No such row, or no snapshot any more: an emptied Redis must make no key unknown.
            await self._read_version()
            self.require()
            return None
        row = decode(data)
        if version == self._version:
            _keep(kept, field, row)
        return row

    async def _follow_version(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self._read_version()

    async def _read_version(self) -> None:
        before = self._version
        found = await self._redis.get(keys.policy_version())
        version = found if isinstance(found, bytes) else None
        if version == before:
            return
        deltas = await self._deltas_between(before, version)
        if self._version != before:
            return  # another call has read it meanwhile
        if deltas is None:
            self._keys.clear()
            self._tenants.clear()
            self._adapters.clear()
            self._adapter_lists.clear()
            self._models = None
        else:
            self._forget_changed(deltas)
            version = deltas[-1].version.encode()
        self._version = version
        self._was_there = self._was_there or version is not None
        if version is None:
            self._has_version.clear()
        else:
            self._has_version.set()

    def _forget_changed(self, deltas: list[PolicyDelta]) -> None:
        for delta in deltas:
            for public_id in delta.api_keys:
                self._keys.pop(public_id, None)
            for tenant_id in delta.tenants:
                self._tenants.pop(tenant_id, None)
            for adapter in delta.adapters:
                self._adapters.pop(adapter, None)
                self._adapter_lists.pop(adapter, None)
            if delta.has_models:
                self._models = None

    async def _deltas_between(
        self, before: bytes | None, version: bytes | None
    ) -> list[PolicyDelta] | None:
        """Return what the versions after `before` changed, up to `version` at least, oldest first;
        None where that is not known of each of them."""
        if before is None or version is None:
            return None
        entries: Any = await self._redis.xrevrange(keys.policy_deltas(), count=_DELTAS_READ)
        newest_first: list[PolicyDelta] = []
        is_reached = False
        for _, fields in entries:
            delta = _decode_delta(fields)
            if delta is None or (newest_first and delta.version != newest_first[-1].base):
                return None
            newest_first.append(delta)
            is_reached = is_reached or delta.version.encode() == version
            if delta.base.encode() == before:
                return newest_first[::-1] if is_reached else None
        return None


def _keep(kept: dict[str, _T], field: str, row: _T) -> None:
    if len(kept) >= _ROWS_KEPT:
        kept.clear()
    kept[field] = row


def _decode_delta(fields: dict[bytes, bytes]) -> PolicyDelta | None:
    """Decode an entry of the stream; None for one of another version of the wire."""
    try:
        return codec.decode_policy_delta(fields.get(stream_fields.POLICY_DELTA_FIELD.encode(), b""))
    except codec.WireFormatError:
        return None
