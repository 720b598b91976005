"""A gateway behind a live server, and the policy snapshot that it reads."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import uvicorn
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys, stream_fields
from gpu_workers.protocol.policy import (
    AdapterList,
    AdapterPolicy,
    AdapterVersionPolicy,
    ApiKeyPolicy,
    KeyDigest,
    ModelPolicy,
    PolicyDelta,
    Scope,
    TenantPolicy,
    TierPolicy,
    list_field,
)
from inference.lifecycle.completions import GatewaySettings
from inference.openai_api.gateway import Gateway, create_gateway
from inference.websocket_api.application import WebsocketApi
from tenants import key_format
from tests.support.gateways.cast import MODEL, POOL
from tests.support.places import NO_TLS
from tests.support.polling import eventually
from tests.support.servers import PEPPER as PEPPER_OF_THE_RUN

PEPPER = PEPPER_OF_THE_RUN
MAX_BODY_BYTES = 256 * 1024


def settings_of(gateway_redis_url: str) -> GatewaySettings:
    return GatewaySettings(
        dispatch_redis_url=gateway_redis_url,
        api_key_pepper=PEPPER,
        cache_salt_secret=b"cache-salt-secret-of-the-gateway-tests",
        allowed_origins=("http://app.example",),
        max_body_bytes=MAX_BODY_BYTES,
        max_queue_length=8,
        max_requests_per_websocket=4,
        drain_seconds=0.5,
    )


def a_tier(**changes: Any) -> TierPolicy:
    fields: dict[str, Any] = {
        "name": "standard",
        "priority": 0,
        "weight": 1,
        "ttft_target_ms": 1000,
        "max_queue_seconds": 30,
        "requests_per_minute": 1000,
        "max_concurrent_requests": 100,
        "default_max_output_tokens": 64,
        "max_output_tokens": 512,
    }
    return TierPolicy(**(fields | changes))


class Snapshot:
    """Writes the policy snapshot as the control plane would."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._version = 0
        self._keys: dict[str, ApiKeyPolicy] = {}
        self._tenants: dict[str, TenantPolicy] = {}
        self._models: dict[str, ModelPolicy] = {}
        self._adapters: dict[str, AdapterPolicy] = {}

    async def add_key(self, tenant: str, **changes: Any) -> str:
        """A fresh key of a tenant; returns the key."""
        key = key_format.generate()
        await self.put_key(key, tenant, **changes)
        return key

    async def put_key(
        self, key: str, tenant: str, *, tier: TierPolicy | None = None, **changes: Any
    ) -> None:
        """Writes a key, or changes what was written of it; `tier` is its tenant's from now on."""
        tenant_id, public_id = tenant.lower(), key_format.parse(key).public_id
        fields: dict[str, Any] = {
            "key_id": f"key-of-{tenant}",
            "digests": [KeyDigest(digest=key_format.digest(key, PEPPER))],
            "tenant_id": tenant_id,
            "project_id": f"project-of-{tenant}",
            "project_name": "Web",
            "scopes": [Scope.INFERENCE],
        }
        if public_id in self._keys:
            policy = msgspec.structs.replace(self._keys[public_id], **changes)
        else:
            policy = ApiKeyPolicy(**(fields | changes))
        self._keys[public_id] = policy
        await self._redis.hset(keys.policy_api_keys(), public_id, codec.encode(policy))
        await self.bump(api_keys=[public_id])
        await self.put_tenant(tenant, **({} if tier is None else {"tier": tier}))

    async def put_tenant(self, tenant: str, **changes: Any) -> None:
        """Writes a tenant, or changes what was written of it."""
        tenant_id = tenant.lower()
        known = self._tenants.get(tenant_id) or TenantPolicy(
            tenant_id=tenant_id, name=tenant, tier=a_tier(), slug=tenant_id
        )
        policy = self._tenants[tenant_id] = msgspec.structs.replace(known, **changes)
        await self._redis.hset(keys.policy_tenants(), tenant_id, codec.encode(policy))
        await self.bump(tenants=[tenant_id])

    async def remove_key(self, key: str) -> None:
        public_id = key_format.parse(key).public_id
        await self._redis.hdel(keys.policy_api_keys(), public_id)
        await self.bump(api_keys=[public_id])

    async def add_model(
        self, name: str, tenant_ids: list[str] | None = None, **changes: Any
    ) -> None:
        fields: dict[str, Any] = {"pool": POOL, "context_tokens": 2048} | changes
        policy = ModelPolicy(
            name=name, created_at=1, owned_by="penstock", tenant_ids=tenant_ids, **fields
        )
        self._models[name] = policy
        await self._redis.hset(keys.policy_models(), name, codec.encode(policy))
        await self._redis.sadd(keys.known_pools(), policy.pool)
        await self.bump(has_models=True)

    async def put_adapter(
        self, name: str, shares: dict[int, int] | None = None, *, model: str = MODEL
    ) -> None:
        """Writes an adapter of the tenant that its name begins with, or writes it anew: its ready
        versions, each with its share in permille."""
        tenant = name.partition("/")[0]
        versions = [
            AdapterVersionPolicy(number=number, adapter=opaque(name, number), permille=share)
            for number, share in (shares or {1: 1000}).items()
        ]
        self._adapters[name] = AdapterPolicy(
            name=name, tenant_id=tenant, model=model, created_at=7, versions=versions
        )
        await self._write_adapters(name)

    async def remove_adapter(self, name: str) -> None:
        del self._adapters[name]
        await self._redis.hdel(keys.policy_adapters(), name)
        await self._write_adapters(name)

    async def _write_adapters(self, changed: str) -> None:
        field = list_field(changed)
        names = sorted(name for name in self._adapters if list_field(name) == field)
        rows = {name: codec.encode(self._adapters[name]) for name in names}
        rows[field] = codec.encode(AdapterList(names=names))
        await self._redis.hset(keys.policy_adapters(), mapping=rows)  # type: ignore[arg-type]
        await self.bump(adapters=[changed, field])

    async def write_again(self) -> None:
        """All of it, into a Redis that has lost it."""
        for public_id, key in self._keys.items():
            await self._redis.hset(keys.policy_api_keys(), public_id, codec.encode(key))
        for tenant_id, tenant in self._tenants.items():
            await self._redis.hset(keys.policy_tenants(), tenant_id, codec.encode(tenant))
        for name, model in self._models.items():
            await self._redis.hset(keys.policy_models(), name, codec.encode(model))
            await self._redis.sadd(keys.known_pools(), model.pool)
        await self.bump()

    async def bump(self, **changed: Any) -> None:
        """A new version, which says what it changed if that is given."""
        base = str(self._version)
        self._version += 1
        if changed:
            delta = PolicyDelta(base=base, version=str(self._version), **changed)
            entry: Any = {stream_fields.POLICY_DELTA_FIELD: codec.encode(delta)}
            await self._redis.xadd(keys.policy_deltas(), entry)
        await self._redis.set(keys.policy_version(), str(self._version))


def opaque(name: str, number: int) -> str:
    """What queues and engines call a version of an adapter."""
    return hashlib.sha256(f"{name}@{number}".encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a client knows: the address and Alice's and Bob's keys."""

    url: str
    alice: str
    bob: str
    snapshot: Snapshot
    gateway: Gateway

    def client(self, key: str | None = None, **options: Any) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.alice if key is None else key}"}
        return httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=10, verify=NO_TLS, **options
        )


class Server(uvicorn.Server):
    """uvicorn in the tests' own event loop: signals stay pytest's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(application: Any, **options: Any) -> AsyncIterator[str]:
    """The address at which an ASGI application is served while the block runs. `options` are
    uvicorn's."""
    config = uvicorn.Config(
        application,
        host="127.0.0.1",
        port=0,
        lifespan="off",
        log_level="error",
        ws="websockets-sansio",
        proxy_headers=False,
        **options,
    )
    server = Server(config)
    task = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        server.force_exit = True
        await task


@contextlib.asynccontextmanager
async def a_service(settings: GatewaySettings, snapshot: Snapshot) -> AsyncIterator[Service]:
    alice, bob = await snapshot.add_key("Acme"), await snapshot.add_key("Globex")
    await snapshot.add_model(MODEL)
    gateway = create_gateway(settings)
    websocket = WebsocketApi(gateway.completions, settings)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await (websocket if scope["type"] == "websocket" else gateway.http)(scope, receive, send)

    await gateway.startup()
    try:
        async with serving(application) as url:
            yield Service(url=url, alice=alice, bob=bob, snapshot=snapshot, gateway=gateway)
    finally:
        await gateway.shutdown()
