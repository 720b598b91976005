"""Who may call, and how much: the key check against the policy snapshot, and reservations.

Works on Redis alone. What was read of the snapshot stays in the process until its version changes,
so a busy key costs no look-up; a revocation reaches every gateway within `POLL_SECONDS`.
"""

import asyncio
import hashlib
import math
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import Counter
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.policy import ApiKeyPolicy, Caller, ModelPolicy, is_visible_to
from inference.background import Background
from inference.errors import LimitReached, ModelNotFound, Unauthenticated, Unavailable
from inference.redis_functions import FunctionLibrary
from tenants import api_keys

_log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 0.25
TICKET_SECONDS: Final = 30
# How old a reservation must be before the sweeper asks whether its request still exists.
SWEEP_AGE_MS: Final = 60_000
_HINT_SECONDS: Final = 30.0
_CACHED_CALLERS: Final = 50_000
_WRONG_KEY: Final = "This API key does not work; check that it was copied whole."

REFUSED = Counter(
    "penstock_gateway_limit_refusals_total", "Requests refused by a limit of a tier.", ["limit"]
)
_WHAT_IS_LIMITED: Final = {
    "requests_per_minute": "requests a minute",
    "concurrent_requests": "requests at once",
}


class Admission:
    """The gate of one gateway process."""

    def __init__(self, redis: Redis, *, pepper: bytes) -> None:
        self._redis = redis
        self._pepper = pepper
        self._functions = FunctionLibrary(redis, Path(__file__).with_name("admission.lua"))
        self._background = Background()
        self._version: bytes | None = None
        self._callers: dict[bytes, Caller] = {}  # by the whole SHA-256 of the presented key
        self._keys: dict[str, ApiKeyPolicy] = {}
        self._models: dict[str, ModelPolicy] | None = None
        self._hinted_at: dict[str, float] = {}

    async def start(self) -> None:
        """Loads the functions, reads the snapshot's version and follows it from now on."""
        try:
            await self._functions.load()
            await self._read_version()
        except RedisError as error:
            _log.warning("admission_starts_without_redis", reason=repr(error))
        self._background.supervise(self._follow_version, name="policy-version")

    async def stop(self) -> None:
        await self._background.stop()

    @property
    def has_policy(self) -> bool:
        """Whether there is a snapshot to check keys against."""
        return self._version is not None

    # who ----------------------------------------------------------------------------------------

    async def authenticate(self, authorization: str | None) -> Caller:
        """Who an Authorization header speaks for; `Unauthenticated` if nobody, `Unavailable`
        while there is no snapshot to tell."""
        key = _bearer_token(authorization)
        fingerprint = hashlib.sha256(key.encode()).digest()
        caller = self._callers.get(fingerprint)
        if caller is not None:
            return caller
        try:
            public_id = api_keys.parse(key).public_id
        except api_keys.MalformedApiKey as error:
            raise Unauthenticated(f"This is no API key of ours: {error}.") from None
        version = self._require_policy()
        policy = await self._key_policy(public_id)
        if not api_keys.is_genuine(key, policy.secret_digest if policy else b"", self._pepper):
            raise Unauthenticated(_WRONG_KEY)
        assert policy is not None  # noqa: S101 - nothing is genuine against an empty digest
        caller = _caller(public_id, policy)
        if version == self._version and len(self._callers) < _CACHED_CALLERS:
            self._callers[fingerprint] = caller
        return caller

    async def still(self, caller: Caller) -> Caller:
        """The same caller under today's policy, for connections that outlive one request."""
        self._require_policy()
        policy = await self._key_policy(caller.public_key_id)
        if policy is None:
            raise Unauthenticated(_WRONG_KEY)
        return _caller(caller.public_key_id, policy)

    async def issue_ticket(self, caller: Caller) -> str:
        """A word that stands for the caller once, within `TICKET_SECONDS`: browsers cannot set
        headers on a websocket. Redis holds only its digest."""
        ticket = secrets.token_urlsafe(32)
        await self._redis.set(_ticket_key(ticket), codec.encode(caller), ex=TICKET_SECONDS)
        return ticket

    async def redeem_ticket(self, ticket: str) -> Caller:
        """Whom a ticket stood for; it is void from now on."""
        data = await self._redis.getdel(_ticket_key(ticket))
        if not isinstance(data, bytes):
            raise Unauthenticated("This ticket is unknown, used or too old; ask for another.")
        return await self.still(codec.decode_caller(data))

    async def _key_policy(self, public_id: str) -> ApiKeyPolicy | None:
        policy = self._keys.get(public_id)
        if policy is not None:
            return policy
        version = self._version
        data = await self._redis.hget(keys.policy_api_keys(), public_id)
        if not isinstance(data, bytes):
            return None
        policy = codec.decode_api_key(data)
        if version == self._version and len(self._keys) < _CACHED_CALLERS:
            self._keys[public_id] = policy
        return policy

    # what ---------------------------------------------------------------------------------------

    async def visible_models(self, caller: Caller) -> list[ModelPolicy]:
        models = await self._all_models()
        return [model for model in models.values() if is_visible_to(model, caller.tenant_id)]

    async def model(self, name: str, caller: Caller) -> ModelPolicy:
        """The model, if the caller may know of it."""
        model = (await self._all_models()).get(name)
        if model is None or not is_visible_to(model, caller.tenant_id):
            raise ModelNotFound(
                f"The model {name[:200]!r} does not exist, or you have no access to it; "
                "GET /v1/models lists yours.",
                param="model",
            )
        return model

    async def _all_models(self) -> dict[str, ModelPolicy]:
        if self._models is not None:
            return self._models
        version = self._require_policy()
        rows = await self._redis.hvals(keys.policy_models())
        policies = [codec.decode_model(row) for row in rows if isinstance(row, bytes)]
        models = {model.name: model for model in sorted(policies, key=lambda each: each.name)}
        if version == self._version:
            self._models = models
        return models

    # how much -----------------------------------------------------------------------------------

    async def reserve(self, request_id: str, pool: str, caller: Caller) -> None:
        """Counts the request against the tenant's limits, or raises `LimitReached`."""
        now = time.monotonic()
        if now - self._hinted_at.get(caller.tenant_id, -_HINT_SECONDS) >= _HINT_SECONDS:
            await self._redis.sadd(keys.tenants_with_reservations(), caller.tenant_id)
            self._hinted_at[caller.tenant_id] = now
        answer = await self._functions.call(
            keys.FUNCTION_RESERVE,
            keys.tenant_prefix(caller.tenant_id),
            request_id,
            pool,
            caller.tier.requests_per_minute,
            caller.tier.max_concurrent_requests,
        )
        if answer[0] == 0:
            raise _limit_reached(caller, answer[1].decode(), *answer[2:])

    async def release(self, reservations: Iterable[tuple[str, str]]) -> None:
        """Gives back each (tenant id, request id), in one round trip; what is not there is fine."""
        pipeline = self._redis.pipeline(transaction=False)
        for tenant_id, request_id in reservations:
            pipeline.fcall(keys.FUNCTION_RELEASE, 1, keys.tenant_prefix(tenant_id), request_id)
        try:
            await pipeline.execute()
        except ResponseError:
            # A Redis that restarted empty has no reservations either; only the functions go back.
            await self._functions.load()

    # the snapshot's version ---------------------------------------------------------------------

    def _require_policy(self) -> bytes:
        if self._version is None:
            raise Unavailable(
                "The service cannot check API keys yet; its control plane is starting.",
                code="policy_unavailable",
                retry_after_seconds=1,
            )
        return self._version

    async def _follow_version(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self._read_version()

    async def _read_version(self) -> None:
        version = await self._redis.get(keys.policy_version())
        if version != self._version:
            self._callers.clear()
            self._keys.clear()
            self._models = None
            self._version = version if isinstance(version, bytes) else None


async def sweep(redis: Redis, *, age_ms: int = SWEEP_AGE_MS) -> int:
    """Releases reservations that outlived their request: a gateway died between two calls. Never
    one whose request the pool still holds open. Returns how many it released."""
    functions = FunctionLibrary(redis, Path(__file__).with_name("admission.lua"))
    seconds, microseconds = await redis.time()
    oldest_ms = seconds * 1000 + microseconds // 1000 - age_ms
    released = 0
    for tenant in await redis.smembers(keys.tenants_with_reservations()):
        tenant_id = tenant.decode() if isinstance(tenant, bytes) else tenant
        reservations = keys.tenant_reservations(tenant_id)
        async for request, value in redis.hscan_iter(reservations):
            request_id, (reserved_at, _, pool) = request.decode(), value.decode().partition("|")
            if int(reserved_at) > oldest_ms:
                continue
            if await redis.zscore(keys.pool_open_requests(pool), request_id) is None:
                released += await functions.call(
                    keys.FUNCTION_RELEASE, keys.tenant_prefix(tenant_id), request_id
                )
    return released


def _ticket_key(ticket: str) -> str:
    return keys.stream_ticket(hashlib.sha256(ticket.encode()).hexdigest())


def _bearer_token(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    if not authorization or not token.strip():
        raise Unauthenticated(
            "An API key is needed: send the header `Authorization: Bearer <key>`."
        )
    if scheme.lower() != "bearer":
        raise Unauthenticated("The Authorization header must be of the form `Bearer <key>`.")
    return token.strip()


def _caller(public_id: str, policy: ApiKeyPolicy) -> Caller:
    if policy.refusal is not None:
        raise Unauthenticated(policy.refusal)
    return Caller(
        key_id=policy.key_id,
        tenant_id=policy.tenant_id,
        project_id=policy.project_id,
        tier=policy.tier,
        tenant_name=policy.tenant_name,
        public_key_id=public_id,
    )


def _limit_reached(
    caller: Caller, limit_name: str, used: int, limit: int, reset_ms: int
) -> LimitReached:
    REFUSED.labels(limit_name).inc()
    seconds = max(1, math.ceil(reset_ms / 1000))
    return LimitReached(
        f"{caller.tenant_name or 'Your organisation'} has reached its limit of {limit} "
        f"{_WHAT_IS_LIMITED.get(limit_name, limit_name)} (tier {caller.tier.name}): {used} are "
        f"used; try again in {seconds} s.",
        code=f"{limit_name}_exceeded",
        retry_after_seconds=seconds,
    )
