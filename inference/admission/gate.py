"""The gate of one gateway process: who may call, which models they see, and how much they may use.

Works on Redis alone: the policy snapshot says who and how much, reservations what is used of it.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import codec
from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import Caller, LimitName, ModelPolicy, Scope
from inference.admission.callable_models import CallableModel, CallableModels, KnownModel
from inference.admission.key_activity import KeyActivity
from inference.admission.key_check import ApiKeyCheck
from inference.admission.limits import (
    Headers,
    LimitStatus,
    ScopedLimit,
    cost,
    limits_of,
    packed,
    rate_limit_headers,
    refusal,
)
from inference.admission.policy_snapshot import POLL_SECONDS, PolicySnapshot
from inference.admission.refusals import Refusals
from inference.admission.reservations import (
    Clock,
    Correction,
    FailedCorrection,
    PoolTarget,
    ReservationRequest,
    Reservations,
)
from inference.admission.tickets import TICKET_SECONDS, new_ticket, ticket_key
from inference.charges import Charge
from inference.errors import InferenceError, PolicyLost, Unauthenticated
from inference.redis_retry import retry_until

__all__ = ["POLL_SECONDS", "TICKET_SECONDS", "Admission", "Admitted"]

_log = structlog.get_logger(__name__)

_MINUTE_MS: Final = 60_000
_LIMITS_KEPT: Final = 10_000
_NO_LIMITS: Final = packed([])
# How long a lost snapshot is waited for, before the caller, and so its tier's own limit, is known.
_LOST_SNAPSHOT_SECONDS: Final = 30.0
_SLIDING: Final = (LimitName.REQUESTS_PER_MINUTE, LimitName.TOKENS_PER_MINUTE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Admitted:
    """A request has reserved what it may cost at most, and its sequences. `headers` tell its client
    what is left."""

    charge: Charge
    prices: Prices
    headers: Headers
    sequences: int = 1


class Admission:
    """The gate. `clock` (Unix ms) replaces Redis TIME where use is counted, for tests only."""

    def __init__(
        self,
        redis: Redis,
        *,
        pepper: bytes,
        previous_peppers: tuple[bytes, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self._redis = redis
        self._snapshot = PolicySnapshot(redis)
        self._offers = CallableModels(self._snapshot)
        self._reservations = Reservations(redis, clock=clock)
        self._key_activity = KeyActivity(redis)
        self.refusals = Refusals(redis)
        self._limits: dict[int, tuple[Caller, list[ScopedLimit], bytes]] = {}
        self._check = ApiKeyCheck(
            self._snapshot,
            pepper=pepper,
            previous_peppers=previous_peppers,
            on_use=self._key_activity.note_use,
            on_earlier_pepper=self._key_activity.note_digest,
        )

    async def start(self) -> None:
        """Load the functions, read the snapshot's version and follow it from now on."""
        try:
            await self._reservations.load_functions()
        except (RedisError, OSError) as error:
            _log.warning("admission_starts_without_redis", reason=repr(error))
        await self._snapshot.start()
        self._key_activity.start()
        self.refusals.start()

    async def stop(self) -> None:
        await self._snapshot.stop()
        await self._key_activity.stop()
        await self.refusals.stop()

    @property
    def has_policy(self) -> bool:
        """Return whether there is a snapshot to check keys against."""
        return self._snapshot.version is not None

    # who ----------------------------------------------------------------------------------------

    async def authenticate(
        self, authorization: str | None, *, address: str | None, scope: Scope | None
    ) -> Caller:
        """See `ApiKeyCheck.authenticate`. A snapshot that Redis has lost is waited for."""
        return await retry_until(
            lambda: self._check.authenticate(authorization, address, scope),
            until=time.monotonic() + _LOST_SNAPSHOT_SECONDS,
        )

    async def revalidate(
        self, caller: Caller, *, address: str | None, scope: Scope | None
    ) -> Caller:
        """See `ApiKeyCheck.revalidate`."""
        return await self._check.revalidate(caller, address, scope)

    async def refusal_of(self, caller: Caller) -> InferenceError | None:
        """See `ApiKeyCheck.refusal_of`."""
        return await self._check.refusal_of(caller)

    async def issue_ticket(self, caller: Caller) -> str:
        """Return a token that stands for the caller once, within `TICKET_SECONDS`: browsers cannot
        set headers on a websocket. Redis holds only its digest."""
        ticket = new_ticket(caller)
        await self._redis.set(ticket.key, ticket.entry, ex=TICKET_SECONDS)
        return ticket.text

    async def redeem_ticket(
        self, ticket: str, *, session: str = "", address: str | None, scope: Scope
    ) -> Caller:
        """Return the caller that a ticket stood for; the ticket is spent. `session` is whose page
        presents it; a ticket of the API has none."""
        data = await self._redis.getdel(ticket_key(ticket, session=session))
        if not isinstance(data, bytes):
            raise Unauthenticated("Ticket is invalid, already used or expired; request a new one.")
        caller = await self.revalidate(codec.decode_caller(data), address=address, scope=scope)
        self._key_activity.note_use(caller.public_key_id)
        return caller

    # what ---------------------------------------------------------------------------------------

    async def visible_models(self, caller: Caller) -> list[ModelPolicy]:
        """Return the served models that the caller may know of."""
        return await self._offers.models(caller)

    async def visible_offers(self, caller: Caller) -> list[CallableModel]:
        """Return all that the caller can name: served models, then adapters. A snapshot that Redis
        has lost is waited for."""
        until = time.monotonic() + _LOST_SNAPSHOT_SECONDS
        return await retry_until(lambda: self._offers.all(caller), until=until)

    async def offer(self, name: str, caller: Caller, *, sticky: str = "") -> CallableModel:
        """See `CallableModels.named`."""
        return await self._offers.named(name, caller, sticky=sticky)

    def known_model(self, name: str, caller: Caller) -> KnownModel | None:
        """See `CallableModels.known_model`."""
        return self._offers.known_model(name, caller)

    # how much -----------------------------------------------------------------------------------

    async def reserve(
        self,
        request_id: str,
        caller: Caller,
        pool: str,
        charge: Charge,
        prices: Prices,
        *,
        sequences: int = 1,
        fallback: PoolTarget | None = None,
        is_retry: bool = False,
    ) -> Admitted:
        """Count the request against every limit of its key, project, tenant and tier, or raise
        `LimitReached` and count it against none. Raises `PolicyLost`, which may be waited out, in
        a Redis that has lost what is used. `sequences`: how many are open at once; `fallback`:
        where else it may run; `is_retry`: an earlier try may have reserved it, its answer was
        lost."""
        limits, packed_limits = self._limits_of(caller)
        request = _reservation_request(caller, pool, charge, prices, fallback)
        answer = await self._reservations.reserve_if_restored(
            caller.tenant_id,
            request_id,
            request,
            packed_limits,
            sequences=sequences,
            is_retry=is_retry,
        )
        if answer is None:
            raise PolicyLost(
                "The service is restoring its usage counters; try again.",
                retry_after_seconds=1,
            )
        now_ms, refusing = answer.now_ms, answer.refusing
        resets_at_ms = now_ms + _MINUTE_MS
        if refusing is None:
            statuses = [
                LimitStatus(limit, used + cost(limit.name, charge, sequences), resets_at_ms)
                for limit, used in zip(limits, answer.used, strict=True)
                if limit.name in _SLIDING
            ]
            headers = rate_limit_headers(statuses, now_ms)
            return Admitted(charge=charge, prices=prices, headers=headers, sequences=sequences)
        statuses = [
            LimitStatus(limit, used, resets_at_ms if used else None)
            for limit, used in zip(limits, answer.used, strict=True)
        ]
        if answer.wait_ms is not None:
            limit, used = limits[refusing], answer.used[refusing]
            statuses[refusing] = LimitStatus(limit, used, now_ms + answer.wait_ms)
        headers = rate_limit_headers(statuses, now_ms)
        raise refusal(caller, statuses[refusing], charge, sequences, answer.wait_ms, headers)

    async def restore(self, request_id: str, caller: Caller, pool: str, admitted: Admitted) -> None:
        """Reserve once more for a request that was admitted before Redis lost it: no limit refuses,
        and the sliding minutes have begun anew."""
        request = _reservation_request(caller, pool, admitted.charge, admitted.prices)
        await self._reservations.reserve(
            caller.tenant_id, request_id, request, _NO_LIMITS, sequences=admitted.sequences
        )

    async def wait_for_policy(self) -> None:
        """Wait until `has_policy`."""
        await self._snapshot.wait()

    async def is_policy_in_redis(self) -> bool:
        """See `PolicySnapshot.is_in_redis`."""
        return await self._snapshot.is_in_redis()

    async def true_down(self, corrections: Iterable[Correction]) -> list[FailedCorrection]:
        """See `Reservations.true_down`."""
        return await self._reservations.true_down(corrections)

    async def settle(self, corrections: Iterable[Correction]) -> list[FailedCorrection]:
        """See `Reservations.settle`."""
        return await self._reservations.settle(corrections)

    async def limit_statuses(self, caller: Caller) -> list[LimitStatus]:
        """Return how the caller stands against each of its limits."""
        limits, packed_limits = self._limits_of(caller)
        key = caller.key
        now_ms, uses = await self._reservations.limit_usage(
            caller.tenant_id, key.account_id, key.project_id, packed_limits
        )
        return [
            LimitStatus(limit, used, now_ms + wait_ms if wait_ms else None)
            for limit, (used, wait_ms) in zip(limits, uses, strict=True)
        ]

    def _limits_of(self, caller: Caller) -> tuple[list[ScopedLimit], bytes]:
        """Return the caller's limits, packed; cached while the key check returns the same
        caller."""
        kept = self._limits.get(id(caller))
        if kept is None or kept[0] is not caller:
            if len(self._limits) >= _LIMITS_KEPT:
                self._limits.clear()
            limits = limits_of(caller)
            kept = self._limits[id(caller)] = (caller, limits, packed(limits))
        return kept[1], kept[2]


def _reservation_request(
    caller: Caller, pool: str, charge: Charge, prices: Prices, fallback: PoolTarget | None = None
) -> ReservationRequest:
    return ReservationRequest(
        key_id=caller.key.account_id,
        project_id=caller.key.project_id,
        tokens=charge.tokens,
        nanos=charge.nanos,
        pool=pool,
        prices=prices,
        fallback=fallback,
    )
