"""The limits that hold for a caller, how it stands against them, and how a refusal explains itself.

A limit belongs to a scope: the caller's key, project or tenant, or its tenant's tier, which is
counted with the tenant. All of them hold at once, so the strictest wins.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec
from prometheus_client import Counter

from gpu_workers.protocol.messages import LimitDetail
from gpu_workers.protocol.policy import Caller, LimitName, TierPolicy
from inference.charges import Charge
from inference.errors import LimitReached, QuotaExhausted
from inference.lua_constants import Owner, UseKind
from tenants.money import dollars

REFUSED = Counter(
    "penstock_gateway_limit_refusals_total", "Requests refused by a limit.", ["limit", "scope"]
)

_USE: Final = {
    LimitName.CONCURRENT_REQUESTS: UseKind.OPEN,
    LimitName.TOKENS_PER_DAY: UseKind.DAY_TOKENS,
    LimitName.TOKENS_PER_MONTH: UseKind.MONTH_TOKENS,
    LimitName.SPEND_PER_MONTH: UseKind.MONTH_NANOS,
    LimitName.SPEND_PER_DAY: UseKind.DAY_NANOS,
    LimitName.BALANCE: UseKind.BALANCE,
    LimitName.REQUESTS_PER_MINUTE: UseKind.MINUTE_REQUESTS,
    LimitName.TOKENS_PER_MINUTE: UseKind.MINUTE_TOKENS,
}
_WHAT: Final = {
    LimitName.REQUESTS_PER_MINUTE: "requests a minute",
    LimitName.TOKENS_PER_MINUTE: "tokens a minute",
    LimitName.CONCURRENT_REQUESTS: "concurrent requests",
    LimitName.TOKENS_PER_DAY: "tokens a day",
    LimitName.TOKENS_PER_MONTH: "tokens a month",
    LimitName.SPEND_PER_MONTH: "a month",
    LimitName.SPEND_PER_DAY: "a day",
    LimitName.BALANCE: "of credit",
}
# In nano-dollars.
IN_NANOS: Final = (LimitName.SPEND_PER_DAY, LimitName.SPEND_PER_MONTH, LimitName.BALANCE)
_OF_REQUESTS: Final = (LimitName.REQUESTS_PER_MINUTE, LimitName.CONCURRENT_REQUESTS)
# Waiting for so long is for people: clients that retry by themselves are told not to.
LONGEST_RETRY_MS: Final = 60_000

Headers = tuple[tuple[str, str], ...]


class LimitScope(StrEnum):
    """Whose limit it is."""

    KEY = "key"
    PROJECT = "project"
    TENANT = "tenant"
    TIER = "tier"


_OWNERS: Final = {
    LimitScope.KEY: Owner.KEY,
    LimitScope.PROJECT: Owner.PROJECT,
    LimitScope.TENANT: Owner.TENANT,
    LimitScope.TIER: Owner.TENANT,
}


class ScopedLimit(msgspec.Struct, frozen=True):
    """One limit of a caller."""

    scope: LimitScope
    name: LimitName
    value: int
    is_hard: bool = True


class LimitStatus(msgspec.Struct, frozen=True):
    """How a caller stands against one limit. `resets_at_ms` is when all of it is free again, None
    where nothing is used or nobody can know."""

    limit: ScopedLimit
    used: int
    resets_at_ms: int | None = None

    @property
    def remaining(self) -> int:
        return max(0, self.limit.value - self.used)


def limits_of(caller: Caller) -> list[ScopedLimit]:
    """Return every limit that a request of this caller has to pass."""
    limits = tier_limits(caller.tenant.tier)
    for scope, own in (
        (LimitScope.TENANT, caller.tenant.limits),
        (LimitScope.PROJECT, caller.key.project_limits),
        (LimitScope.KEY, caller.key.limits),
    ):
        for limit in own:
            limits.append(ScopedLimit(scope, limit.name, limit.value, limit.is_hard))
    return limits


def tier_limits(tier: TierPolicy) -> list[ScopedLimit]:
    """Return what a tier limits of the whole of a tenant."""
    limits = [
        ScopedLimit(LimitScope.TIER, LimitName.REQUESTS_PER_MINUTE, tier.requests_per_minute),
        ScopedLimit(LimitScope.TIER, LimitName.CONCURRENT_REQUESTS, tier.max_concurrent_requests),
    ]
    if tier.tokens_per_minute is not None:
        name = LimitName.TOKENS_PER_MINUTE
        limits.append(ScopedLimit(LimitScope.TIER, name, tier.tokens_per_minute))
    return limits


def packed(limits: Sequence[ScopedLimit]) -> bytes:
    """Return the limits as limits.lua takes them, in one list: of each its position in the use, its
    value and 1 if it is hard."""
    numbers: list[int] = []
    for limit in limits:
        position = _USE[limit.name] + _OWNERS[limit.scope]
        numbers += (position, limit.value, int(limit.is_hard))
    return _encode(numbers)


_encode = msgspec.msgpack.Encoder().encode


def cost(name: LimitName, charge: Charge, sequences: int = 1) -> int:
    """Return what a request of so many sequences takes of a limit."""
    if name is LimitName.REQUESTS_PER_MINUTE:
        return 1
    if name is LimitName.CONCURRENT_REQUESTS:
        return sequences
    return charge.nanos if name in IN_NANOS else charge.tokens


def rate_limit_headers(statuses: Sequence[LimitStatus], now_ms: int) -> Headers:
    """Return OpenAI's `x-ratelimit-*`, of the scope with least left. The reset is when the
    limit is back at its initial state; of the limit that refuses, when it has room for the
    request."""
    return (
        *_headers_of("requests", LimitName.REQUESTS_PER_MINUTE, statuses, now_ms),
        *_headers_of("tokens", LimitName.TOKENS_PER_MINUTE, statuses, now_ms),
    )


def _headers_of(
    word: str, name: LimitName, statuses: Sequence[LimitStatus], now_ms: int
) -> Headers:
    hard = [each for each in statuses if each.limit.name is name and each.limit.is_hard]
    if not hard:
        return ()
    tightest = min(hard, key=lambda each: (each.remaining, each.limit.value))
    reset_ms = 0 if tightest.resets_at_ms is None else tightest.resets_at_ms - now_ms
    return (
        (f"x-ratelimit-limit-{word}", str(tightest.limit.value)),
        (f"x-ratelimit-remaining-{word}", str(tightest.remaining)),
        (f"x-ratelimit-reset-{word}", duration(reset_ms)),
    )


def duration(ms: int) -> str:
    """Format a duration as OpenAI does: 6ms, 1s, 2m3s."""
    if ms < 1000:
        return f"{max(0, ms)}ms"
    minutes, seconds = divmod(math.ceil(ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def refusal(
    caller: Caller,
    status: LimitStatus,
    charge: Charge,
    sequences: int,
    wait_ms: int | None,
    headers: Headers,
) -> LimitReached:
    """Return the error of a request that a limit keeps out; `wait_ms` None: it can never fit."""
    limit = status.limit
    REFUSED.labels(limit.name.value, limit.scope.value).inc()
    if limit.name is LimitName.BALANCE:
        return _no_credit(caller, status, charge, headers)
    taken = cost(limit.name, charge, sequences)
    needed = _needed(limit.name, taken)
    what = _WHAT[limit.name]
    if limit.value == 1:
        what = what.replace("requests", "request")
    allowed = f"{_amount(limit.name, limit.value)} {what}"
    seconds = None if wait_ms is None else max(1, math.ceil(wait_ms / 1000))
    detail = LimitDetail(
        limit=limit.name.value,
        scope=limit.scope.value,
        used=status.used,
        limit_value=limit.value,
        reset_seconds=seconds,
    )
    if wait_ms is None or seconds is None:
        fits_narrower = limit.name is LimitName.CONCURRENT_REQUESTS and taken > 1 <= limit.value
        advice = "ask for fewer choices" if fits_narrower else "retrying does not help"
        return LimitReached(
            f"This request {needed}, which {_whose(caller, limit)} limit of {allowed}"
            f"{_of_tier(caller, limit)} can never admit; {advice}.",
            code="request_exceeds_limit",
            limit=detail,
            should_retry=False,
            headers=headers,
        )
    spent = f"{_amount(limit.name, status.used)} {_are(limit.name, status.used)} used"
    if limit.name is LimitName.CONCURRENT_REQUESTS:
        spent = f"{status.used} in use"
    if limit.name not in _OF_REQUESTS or taken > 1:
        spent = f"{spent} and this request {needed}"
    error = QuotaExhausted if limit.name in IN_NANOS else LimitReached
    is_exhausted = error is QuotaExhausted
    return error(
        f"{_who(caller, limit)} has reached its limit of {allowed}"
        f"{_of_tier(caller, limit)}: {spent}; "
        f"{'it resets' if is_exhausted else 'try again'} in {_time(seconds)}.",
        code=None if is_exhausted else f"{limit.name.value}_exceeded",
        retry_after_seconds=seconds,
        retry_after_ms=max(1, wait_ms),
        limit=detail,
        should_retry=False if is_exhausted or wait_ms > LONGEST_RETRY_MS else None,
        headers=headers,
    )


def _no_credit(
    caller: Caller, status: LimitStatus, charge: Charge, headers: Headers
) -> QuotaExhausted:
    """Refuse for lack of credit. Waiting helps only where open requests take less than they
    reserved, so clients that retry by themselves are told not to."""
    who = caller.tenant.name or "Your organisation"
    return QuotaExhausted(
        f"{who} has {dollars(status.remaining)} of credit left that no open request has "
        f"reserved, and this request may cost up to {dollars(charge.nanos)}; top up to continue.",
        limit=LimitDetail(
            limit=status.limit.name.value,
            scope=status.limit.scope.value,
            used=status.used,
            limit_value=status.limit.value,
            reset_seconds=None,
        ),
        should_retry=False,
        headers=headers,
    )


def _who(caller: Caller, limit: ScopedLimit) -> str:
    match limit.scope:
        case LimitScope.KEY:
            return "This API key"
        case LimitScope.PROJECT:
            return f"The project {caller.key.project_name or caller.key.project_id}"
    return caller.tenant.name or "Your organisation"


def _whose(caller: Caller, limit: ScopedLimit) -> str:
    who = _who(caller, limit)
    return f"{who if who == caller.tenant.name else who[0].lower() + who[1:]}'s"


def _of_tier(caller: Caller, limit: ScopedLimit) -> str:
    return f" (tier {caller.tier.name})" if limit.scope is LimitScope.TIER else ""


def _needed(name: LimitName, amount: int) -> str:
    if name in _OF_REQUESTS and amount == 1:
        return "is one"
    if name is LimitName.CONCURRENT_REQUESTS:
        return f"counts as {amount} concurrent requests, one for each choice"
    if name in IN_NANOS:
        return f"may cost up to {dollars(amount)}"
    return f"may take up to {amount} tokens"


def _amount(name: LimitName, value: int) -> str:
    return dollars(value) if name in IN_NANOS else str(value)


def _are(name: LimitName, used: int) -> str:
    return "is" if used == 1 or name in IN_NANOS else "are"


def _time(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    minutes = math.ceil(seconds / 60)
    if minutes < 120:
        return f"{minutes} minutes"
    hours = math.ceil(minutes / 60)
    return f"{hours} hours" if hours < 48 else f"{math.ceil(hours / 24)} days"
