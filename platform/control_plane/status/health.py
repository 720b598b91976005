"""Health checks behind /readyz, /metrics and the front page.

Needs neither Django nor PostgreSQL, so that the gateway can report its health while they are down.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, cast

import psycopg
from msgspec import DecodeError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from control_plane.status.background import Background
from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.codec import WireFormatError, decode_model
from gpu_workers.protocol.policy import ModelPolicy
from gpu_workers.protocol.redis_url import connect_async
from inference.dispatch.worker_registry import PoolWorker, WorkerRegistry
from inference.pools import alone, read_known_pools

TIMEOUT_SECONDS: Final = 2.0
# However many probes there are, the parts are checked no more often than this.
CACHE_SECONDS: Final = 1.0

LookAtBackground = Callable[[Redis], Awaitable[Background]]

_FAILURES = (OSError, RedisError, TimeoutError, psycopg.Error, WireFormatError)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the service. `detail` is a short sentence without addresses or secrets."""

    name: str
    is_well: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class PoolState:
    """A pool of workers at this moment."""

    name: str
    queued: int = 0
    open_requests: int = 0
    unrecorded_usage: int = 0
    # Age of the oldest of it, 0 where there is none.
    oldest_unrecorded_seconds: float = 0.0
    # Workers that were not let in, since Redis was last empty.
    refused_workers: int = 0
    workers: tuple[PoolWorker, ...] = ()
    # Not where Redis has something else of it than it should.
    is_readable: bool = True

    @property
    def live(self) -> tuple[PoolWorker, ...]:
        return tuple(worker for worker in self.workers if worker.is_live)

    @property
    def ready(self) -> tuple[PoolWorker, ...]:
        return tuple(worker for worker in self.workers if worker.is_ready)

    @property
    def degraded(self) -> tuple[PoolWorker, ...]:
        """Return those that serve, but parts of their engine on a slower or lesser path."""
        return tuple(worker for worker in self.live if worker.info.degraded)

    @property
    def degraded_parts(self) -> list[str]:
        return sorted({part for worker in self.degraded for part in worker.info.degraded})


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """A model of the catalogue and the pool behind it."""

    policy: ModelPolicy
    pool: PoolState

    @property
    def is_served(self) -> bool:
        return bool(self.pool.ready)

    @property
    def is_public(self) -> bool:
        """Return whether every tenant may see it, and so may a page without sign-in."""
        return self.policy.tenant_ids is None


@dataclass(frozen=True, kw_only=True)
class HealthReport:
    """All parts at one moment. Ready means that a model would answer a request sent now."""

    parts: tuple[Part, ...]
    pools: tuple[PoolState, ...] = ()
    models: tuple[ModelState, ...] = ()
    # None where that is not looked at, or cannot be.
    background: Background | None = None

    @property
    def is_ready(self) -> bool:
        return all(part.is_well for part in self.parts)


class Health:
    """Checks the parts: PostgreSQL only with a `database_url`, which a gateway alone has not, and
    what runs in the background only with the `background` that looks at it."""

    def __init__(
        self,
        *,
        dispatch_redis_url: str,
        redis_url: str | None = None,
        database_url: str | None = None,
        background: LookAtBackground | None = None,
    ) -> None:
        self._dispatch_redis_url = dispatch_redis_url
        self._redis_url = redis_url
        self._database_url = database_url
        self._look_at = background
        self._looking: asyncio.Task[HealthReport] | None = None
        self._looked_at = 0.0

    async def report(self) -> HealthReport:
        """Return the state of all parts, up to a second old; never raise for one that is down."""
        looking, loop = self._looking, asyncio.get_running_loop()
        is_fresh = looking is not None and (
            not looking.done() or time.monotonic() - self._looked_at < CACHE_SECONDS
        )
        if looking is None or not is_fresh or looking.get_loop() is not loop:
            self._looked_at = time.monotonic()
            looking = self._looking = loop.create_task(self._look())
        return await asyncio.shield(looking)

    async def _look(self) -> HealthReport:
        others: list[Awaitable[Part]] = []
        if self._database_url is not None:
            others.append(_part("PostgreSQL", self._ask_postgres))
        if self._redis_url is not None:
            others.append(_part("Redis", self._ask_redis))
        background = asyncio.create_task(self._background())
        dispatch, *rest = await asyncio.gather(self._look_at_dispatch(), *others)
        assert isinstance(dispatch, HealthReport)  # noqa: S101 - gather loses the types
        parts = (*(part for part in rest if isinstance(part, Part)), *dispatch.parts)
        return HealthReport(
            parts=parts,
            pools=dispatch.pools,
            models=dispatch.models,
            background=await background,
        )

    async def _background(self) -> Background | None:
        if self._redis_url is None or self._look_at is None:
            return None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS), _client(self._redis_url) as redis:
                return await self._look_at(redis)
        except (*_FAILURES, DecodeError):
            return None

    async def _ask_postgres(self) -> str:
        connection = await psycopg.AsyncConnection.connect(
            self._database_url or "", connect_timeout=int(TIMEOUT_SECONDS), autocommit=True
        )
        async with connection:
            await connection.execute("SELECT 1")
        return "reachable"

    async def _ask_redis(self) -> str:
        async with _client(self._redis_url or "") as redis:
            await redis.ping()
        return "reachable"

    async def _look_at_dispatch(self) -> HealthReport:
        name = "Dispatch Redis"
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS), _client(self._dispatch_redis_url) as redis:
                models, pools = await _fleet(redis)
                return HealthReport(
                    parts=(
                        Part(name=name, is_well=True, detail="reachable"),
                        await _policy_part(redis),
                        await _functions_part(redis),
                        _workers_part(models),
                    ),
                    pools=pools,
                    models=models,
                )
        except _FAILURES as error:
            return HealthReport(parts=(Part(name=name, is_well=False, detail=_failure(error)),))


async def _part(name: str, ask: Callable[[], Awaitable[str]]) -> Part:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return Part(name=name, is_well=True, detail=await ask())
    except _FAILURES as error:
        return Part(name=name, is_well=False, detail=_failure(error))


def _failure(error: BaseException) -> str:
    """Describe a failure without the error's text, which may hold hosts, users and passwords."""
    if isinstance(error, TimeoutError):
        return f"no response within {TIMEOUT_SECONDS:g} s"
    if isinstance(error, WireFormatError):
        return "data of an incompatible version"
    return f"unreachable ({type(error).__name__})"


async def _policy_part(redis: Redis) -> Part:
    version = await redis.get(keys.policy_version())
    detail = "not written yet" if version is None else f"version {_text(version)}"
    return Part(name="Policy snapshot", is_well=version is not None, detail=detail)


async def _functions_part(redis: Redis) -> Part:
    missing = [
        library
        for library in (functions.ADMISSION_LIBRARY, functions.DISPATCH_LIBRARY)
        if not await redis.function_list(library=library)
    ]
    detail = f"missing: {', '.join(missing)}" if missing else "loaded"
    return Part(name="Redis functions", is_well=not missing, detail=detail)


def _workers_part(models: tuple[ModelState, ...]) -> Part:
    served = sum(1 for model in models if model.is_served)
    if not models:
        return Part(name="Workers", is_well=False, detail="no models in the catalogue")
    detail = f"{served} of {len(models)} models have a ready worker"
    return Part(name="Workers", is_well=served > 0, detail=detail)


async def _fleet(redis: Redis) -> tuple[tuple[ModelState, ...], tuple[PoolState, ...]]:
    rows = cast(list[bytes], await redis.hvals(keys.policy_models()))
    policies = sorted((decode_model(row) for row in rows), key=lambda policy: policy.name)
    registry = WorkerRegistry(redis)
    names = sorted({policy.pool for policy in policies}.union(await read_known_pools(redis)))
    pools = {name: await _pool(redis, registry, name) for name in names}
    models = tuple(ModelState(policy=policy, pool=pools[policy.pool]) for policy in policies)
    return models, tuple(pools.values())


async def _pool(redis: Redis, registry: WorkerRegistry, name: str) -> PoolState:
    with alone(name):
        return await _readable_pool(redis, registry, name)
    return PoolState(name=name, is_readable=False)


async def _readable_pool(redis: Redis, registry: WorkerRegistry, name: str) -> PoolState:
    pipeline = redis.pipeline(transaction=False)
    pipeline.zcard(keys.pool_queue(name))
    pipeline.zcard(keys.pool_open_requests(name))
    pipeline.xlen(keys.pool_usage(name))
    pipeline.xrange(keys.pool_usage(name), count=1)
    pipeline.hget(keys.pool_identity(name), "refused")
    pipeline.time()
    queued, open_requests, unrecorded, oldest, refused, (seconds, _) = await pipeline.execute()
    return PoolState(
        name=name,
        queued=queued,
        open_requests=open_requests,
        unrecorded_usage=unrecorded,
        oldest_unrecorded_seconds=_age_seconds(oldest, seconds),
        refused_workers=int(refused or 0),
        workers=await registry.workers(name),
    )


def _age_seconds(entries: list[tuple[bytes, object]], now_seconds: int) -> float:
    """Return how old the first entry of a stream is, by its id, which begins with Unix ms."""
    if not entries:
        return 0.0
    return max(0.0, now_seconds - int(entries[0][0].partition(b"-")[0]) / 1000)


def _client(url: str) -> Redis:
    return connect_async(
        url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
    )


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
