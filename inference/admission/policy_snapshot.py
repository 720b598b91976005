"""The policy snapshot as one gateway process sees it: rows of Redis, kept while its version stays.

The version is read four times a second, so a change reaches every process within `POLL_SECONDS`,
and a busy key costs no look-up in between.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.policy import ApiKeyPolicy, ModelPolicy, TenantPolicy
from inference.background import Background
from inference.errors import PolicyLost, PolicyUnavailable

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")

POLL_SECONDS: Final = 0.25
_ROWS_KEPT: Final = 50_000


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
        if version == self._version and len(kept) < _ROWS_KEPT:
            kept[field] = row
        return row

    async def _follow_version(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self._read_version()

    async def _read_version(self) -> None:
        version = await self._redis.get(keys.policy_version())
        if version != self._version:
            self._keys.clear()
            self._tenants.clear()
            self._models = None
            self._version = version if isinstance(version, bytes) else None
            self._was_there = self._was_there or self._version is not None
            if self._version is None:
                self._has_version.clear()
            else:
                self._has_version.set()
