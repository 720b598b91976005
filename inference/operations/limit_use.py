"""How a tenant stands against its limits now, for people who look at them: what GET /v1/limits says
to a key, of many keys and projects at once."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import (
    LimitScope,
    LimitStatus,
    ScopedLimit,
    packed,
    tier_limits,
)
from tenants.models import ApiKey, Quota, Tenant
from tenants.policy.wire import tier_policy
from tenants.policy_redis import policy_redis

log = structlog.get_logger(__name__)

# In place of a key or a project whose limits are not asked for: nothing counts there.
_NOBODY: Final = "-"

# Key and project, as admission counts for them.
_Owners = tuple[str, str]


def use_of_tier(tenant: Tenant) -> tuple[list[ScopedLimit], list[LimitStatus] | None]:
    """Return the limits of the tenant's tier, and how it stands against them; None while nobody can
    tell."""
    limits = tier_limits(tier_policy(tenant.tier))
    return limits, _statuses(tenant, [((_NOBODY, _NOBODY), limit) for limit in limits])


def use_of_quotas(tenant: Tenant, quotas: Sequence[Quota]) -> list[LimitStatus] | None:
    """Return how the tenant stands against each of its quotas, in their order, with keys and
    projects read already; None while nobody can tell."""
    return _statuses(tenant, [(_owners(quota), _limit(quota)) for quota in quotas])


def open_sequences(key: ApiKey) -> int | None:
    """Return how many sequences are open of the requests of the key and of all that count with it;
    None while nobody can tell."""
    limit = ScopedLimit(LimitScope.KEY, LimitName.CONCURRENT_REQUESTS, 1)
    found = _statuses(key.tenant, [((_account(key), str(key.project_id)), limit)])
    return None if found is None else found[0].used


def _owners(quota: Quota) -> _Owners:
    if quota.api_key is not None:
        return _account(quota.api_key), str(quota.api_key.project_id)
    return _NOBODY, _NOBODY if quota.project_id is None else str(quota.project_id)


def _account(key: ApiKey) -> str:
    return str(key.budget_key_id or key.pk)


def _limit(quota: Quota) -> ScopedLimit:
    return ScopedLimit(LimitScope(quota.scope), LimitName(quota.limit), quota.value, quota.is_hard)


def _statuses(
    tenant: Tenant, asked: Sequence[tuple[_Owners, ScopedLimit]]
) -> list[LimitStatus] | None:
    """Ask once for all limits of the same owners, all in one round trip."""
    places: defaultdict[_Owners, list[int]] = defaultdict(list)
    for place, (owners, _) in enumerate(asked):
        places[owners].append(place)
    prefix = keys.tenant_prefix(str(tenant.pk))
    answers: list[Any]
    try:
        with policy_redis().pipeline(transaction=False) as pipeline:
            for (key_id, project_id), of_owners in places.items():
                limits = packed([asked[place][1] for place in of_owners])
                pipeline.fcall(functions.LIMIT_STATUS, 1, prefix, key_id, project_id, limits)
            answers = pipeline.execute()
    except (RedisError, OSError) as error:
        # Weather, or functions that are not loaded yet: limits are shown without their use.
        log.warning("limit_use_unknown", tenant_id=str(tenant.pk), reason=repr(error))
        return None
    statuses: dict[int, LimitStatus] = {}
    for of_owners, (now_ms, *numbers) in zip(places.values(), answers, strict=True):
        uses = zip(numbers[::2], numbers[1::2], strict=True)
        for place, (used, wait_ms) in zip(of_owners, uses, strict=True):
            resets_at_ms = now_ms + wait_ms if wait_ms else None
            statuses[place] = LimitStatus(asked[place][1], used, resets_at_ms)
    return [statuses[place] for place in range(len(asked))]
