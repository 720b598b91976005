"""What requests have reserved of their tenants' limits, through the functions of admission.lua.

A reservation is made once for the worst case, trued down when the worker has counted the prompt,
and settled at the end to what was really used, after which it is gone. Each of these may be
repeated, and may come too late, without harm.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from redis.asyncio import Redis

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.messages import Prices
from inference.charges import NOTHING, Charge, actual
from inference.redis_functions import ADMISSION, FunctionLibrary

_log = structlog.get_logger(__name__)

# How old a reservation must be before the sweeper asks whether its request still exists.
SWEEP_AGE_MS: Final = 30_000
# How often the sweeper is told that a tenant has reservations.
HINT_SECONDS: Final = 30.0
_TENANTS_HINTED: Final = 100_000

Clock = Callable[[], int]


class PoolTarget(msgspec.Struct, frozen=True, array_like=True):
    """Where a request may run, and at which prices."""

    pool: str
    prices: Prices


class ReservationRequest(msgspec.Struct, frozen=True, array_like=True):
    """What a request reserves. The functions go by the first four (`lua_constants.RequestField`).
    `key_id` is the key at whose limits it counts. `fallback` is the target of the model that
    answers where the one asked for is saturated; it stays last, as Lua keeps no nil elsewhere."""

    key_id: str
    project_id: str
    tokens: int
    nanos: int
    pool: str
    prices: Prices
    fallback: PoolTarget | None = None

    @property
    def targets(self) -> list[PoolTarget]:
        """Return every pool that the request may be in."""
        target = PoolTarget(self.pool, self.prices)
        return [target] if self.fallback is None else [target, self.fallback]


class Reservation(msgspec.Struct, frozen=True, array_like=True):
    """An open reservation, as it lies in Redis. `windows` has a digit for each owner: 1 where its
    tokens count in a sliding minute. `sequences`: how many count as open at once."""

    at_ms: int
    windows: str
    request: ReservationRequest
    sequences: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Of `reserve`. `refusing` is the index of the limit that keeps the request out, None if none
    does; `wait_ms` how long that lasts, None for ever. `used` is of each limit, before this
    request."""

    now_ms: int
    refusing: int | None
    wait_ms: int | None
    used: list[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """What the reservation of a request is to be from now on."""

    tenant_id: str
    request_id: str
    charge: Charge


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedCorrection:
    """A correction that the functions cannot make, as its reservation cannot be read."""

    correction: Correction
    reason: str


class Reservations:
    """Each method is one round trip. `clock` (Unix ms) replaces Redis TIME, for tests only."""

    def __init__(self, redis: Redis, *, clock: Clock | None = None) -> None:
        self._redis = redis
        self._clock = clock
        self._functions = FunctionLibrary(redis, ADMISSION)
        self._hinted_at: dict[str, float] = {}

    async def load_functions(self) -> None:
        await self._functions.load()

    async def reserve(
        self,
        tenant_id: str,
        request_id: str,
        request: ReservationRequest,
        limits: bytes,
        *,
        sequences: int = 1,
    ) -> Answer:
        """Check all limits, `packed`, then take all of them or none. Idempotent by request id."""
        await self._hint(tenant_id)
        answer = await self._functions.call(
            functions.RESERVE,
            keys.tenant_prefix(tenant_id),
            *self._arguments(request_id, request, limits, sequences),
        )
        return _answer(answer)

    async def reserve_if_restored(
        self,
        tenant_id: str,
        request_id: str,
        request: ReservationRequest,
        limits: bytes,
        *,
        sequences: int = 1,
        is_retry: bool = False,
    ) -> Answer | None:
        """Reserve as `reserve` does. Return None, with nothing reserved, while Redis has not been
        given back what the tenant has used by now; that is there as soon as the policy snapshot is.
        `is_retry`: what an earlier try may have left, perhaps in such a Redis, counts for
        nothing."""
        nothing = Correction(tenant_id=tenant_id, request_id=request_id, charge=NOTHING)
        if is_retry:
            await self.settle([nothing])
        await self._hint(tenant_id)
        version, answer = await self._functions.call_with(
            keys.policy_version(),
            functions.RESERVE,
            keys.tenant_prefix(tenant_id),
            *self._arguments(request_id, request, limits, sequences),
        )
        if version is not None:
            return _answer(answer)
        await self.settle([nothing])
        return None

    def _arguments(
        self, request_id: str, request: ReservationRequest, limits: bytes, sequences: int
    ) -> tuple[str | bytes | int, ...]:
        return (
            request_id,
            request.key_id,
            request.project_id,
            request.tokens,
            request.nanos,
            _encode(request),
            limits,
            sequences,
            *self._time(),
        )

    async def true_down(self, corrections: Iterable[Correction]) -> list[FailedCorrection]:
        """Shrink reservations that stay open; they never grow. Otherwise as `settle`."""
        return await self._correct(functions.TRUE_DOWN, corrections)

    async def settle(self, corrections: Iterable[Correction]) -> list[FailedCorrection]:
        """End reservations; unknown ones are ignored. Return those that cannot be: they keep no
        other from its end."""
        return await self._correct(functions.SETTLE, corrections)

    async def limit_usage(
        self, tenant_id: str, key_id: str, project_id: str, limits: bytes
    ) -> tuple[int, list[tuple[int, int]]]:
        """Return Redis TIME in ms; what is used of each of the `packed` limits, and in how many ms
        it is all free again (0: nothing is used, or nobody knows)."""
        now_ms, *numbers = await self._functions.call(
            functions.LIMIT_STATUS,
            keys.tenant_prefix(tenant_id),
            key_id,
            project_id,
            limits,
            *self._time(),
        )
        return now_ms, list(zip(numbers[::2], numbers[1::2], strict=True))

    async def _correct(
        self, function: str, corrections: Iterable[Correction]
    ) -> list[FailedCorrection]:
        asked = list(corrections)
        failed = await self._functions.call_each(
            function,
            [
                (
                    keys.tenant_prefix(each.tenant_id),
                    each.request_id,
                    each.charge.tokens,
                    each.charge.nanos,
                    *self._time(),
                )
                for each in asked
            ],
        )
        return [
            FailedCorrection(correction=asked[position], reason=str(error))
            for position, error in failed
        ]

    async def _hint(self, tenant_id: str) -> None:
        """Record for the sweeper where to look."""
        now = time.monotonic()
        if now - self._hinted_at.get(tenant_id, -HINT_SECONDS) < HINT_SECONDS:
            return
        await self._redis.sadd(keys.tenants_with_reservations(), tenant_id)
        if len(self._hinted_at) >= _TENANTS_HINTED:
            self._hinted_at.clear()
        self._hinted_at[tenant_id] = now

    def _time(self) -> tuple[int, ...]:
        return () if self._clock is None else (self._clock(),)


def _answer(numbers: list[int]) -> Answer:
    now_ms, refusing, wait_ms, *used = numbers
    return Answer(
        now_ms=now_ms,
        refusing=refusing - 1 if refusing else None,
        wait_ms=None if wait_ms < 0 else wait_ms,
        used=used,
    )


async def sweep(redis: Redis, *, age_ms: int = SWEEP_AGE_MS, clock: Clock | None = None) -> int:
    """Settle reservations that outlived their request: a gateway died between two calls. Never one
    whose request the pool still holds open. One that cannot be settled keeps no other from it; fsck
    tells of it. Return how many it settled."""
    reservations = Reservations(redis, clock=clock)
    oldest_ms = (clock() if clock else await _redis_ms(redis)) - age_ms
    swept = 0
    for tenant in await redis.smembers(keys.tenants_with_reservations()):
        tenant_id = tenant.decode() if isinstance(tenant, bytes) else tenant
        async for request, value in redis.hscan_iter(keys.tenant_reservations(tenant_id)):
            reservation, request_id = read_reservation(value), request.decode()
            if reservation is None or reservation.at_ms > oldest_ms:
                continue
            targets = reservation.request.targets
            if await _is_open(redis, request_id, targets):
                continue
            try:
                charge = await _charge_on_record(redis, request_id, targets)
            except codec.WireFormatError as error:
                _log.error("reservation_not_settled", request_id=request_id, reason=str(error))
                continue
            correction = Correction(tenant_id=tenant_id, request_id=request_id, charge=charge)
            failed = await reservations.settle([correction])
            for each in failed:
                _log.error("reservation_not_settled", request_id=request_id, reason=each.reason)
            swept += not failed
    return swept


async def _is_open(redis: Redis, request_id: str, targets: list[PoolTarget]) -> bool:
    for target in targets:
        if await redis.zscore(keys.pool_open_requests(target.pool), request_id) is not None:
            return True
    return False


async def _charge_on_record(redis: Redis, request_id: str, targets: list[PoolTarget]) -> Charge:
    """Return what the request's terminal record says, as long as its pool remembers it; a request
    that no pool knows was never run."""
    for target in targets:
        record = await redis.hget(keys.pool_request(target.pool, request_id), "record")
        if isinstance(record, bytes):
            entry = codec.decode_usage_entry(record)
            return actual(entry.outcome, entry.usage, target.prices)
    return NOTHING


async def _redis_ms(redis: Redis) -> int:
    seconds, microseconds = await redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def read_reservation(value: bytes) -> Reservation | None:
    """Decode a reservation; None for bytes of another version."""
    try:
        return _decode(value)
    except msgspec.MsgspecError:
        return None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Reservation).decode
