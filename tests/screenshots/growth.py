"""What an organisation has after some months: keys that came and went, limits of which something is
used, usage to look at."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from redis.asyncio import Redis

from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import LimitScope, ScopedLimit, packed
from inference.admission.reservations import ReservationRequest, Reservations
from inference.usage.rollups import Use, add_to_rollups
from tenants.access.api_keys import issue_api_key
from tenants.models import ApiKey, Membership, Project, Quota, Tenant
from tests.support.servers import servers

_DAY: Final = timedelta(days=1)
# Name, project, scopes, days old, last used hours ago (None: never), expires in days, is revoked.
_KEYS: Final = (
    ("web backend", 0, ["inference"], 180, 0.02, None, False),
    ("ios app", 1, ["inference"], 95, 0.4, 270, False),
    ("nightly summaries", 2, ["inference", "usage:read"], 60, 9, 30, False),
    ("finance export", 0, ["usage:read"], 41, 30, None, False),
    ("support assistant, staging", 3, ["inference", "adapters:write"], 20, 2, None, False),
    ("key automation", 3, ["keys:write"], 12, None, 78, False),
    ("contractor", 4, ["inference"], 210, 900, -14, False),
    ("leaked in a build log", 0, ["inference"], 150, 700, None, True),
)
_QUOTAS: Final = (
    (1, LimitName.SPEND_PER_MONTH, 250 * 10**9, True),
    (1, LimitName.REQUESTS_PER_MINUTE, 300, True),
    (2, LimitName.TOKENS_PER_DAY, 40_000_000, False),
    (3, LimitName.SPEND_PER_DAY, 12_500_000_000, True),
)
_NO_LIMITS: Final = packed(
    [
        ScopedLimit(LimitScope.TIER, LimitName.REQUESTS_PER_MINUTE, 10**6),
        ScopedLimit(LimitScope.PROJECT, LimitName.REQUESTS_PER_MINUTE, 10**6),
        ScopedLimit(LimitScope.TIER, LimitName.TOKENS_PER_MINUTE, 10**12),
    ]
)


def let_grow(tenant: Tenant, projects: list[Project], members: list[Membership]) -> list[ApiKey]:
    """Write it to the database and the dispatch Redis; return the keys, the first of which is in
    use everywhere."""
    keys = [_key(number, projects, members) for number in range(len(_KEYS))]
    for place, limit, value, is_hard in _QUOTAS:
        Quota.objects.create(
            tenant=tenant, project=projects[place], limit=limit, value=value, is_hard=is_hard
        )
    Quota.objects.create(tenant=tenant, limit=LimitName.SPEND_PER_MONTH, value=5000 * 10**9)
    Quota.objects.create(
        tenant=tenant, api_key=keys[0], limit=LimitName.CONCURRENT_REQUESTS, value=24
    )
    _use_up_to_now(keys)
    asyncio.run(_reserve(keys))
    return keys


def _key(number: int, projects: list[Project], members: list[Membership]) -> ApiKey:
    name, place, scopes, days, hours, expires, is_revoked = _KEYS[number]
    now = datetime.now(UTC)
    by = members[number % 2]
    key = issue_api_key(projects[place], name=name, scopes=scopes, by=by).record
    if is_revoked:
        key.revoke()
    ApiKey.objects.filter(id=key.id).update(
        created_at=now - days * _DAY,
        last_used_at=None if hours is None else now - timedelta(hours=hours),
        expires_at=None if expires is None else now + expires * _DAY,
    )
    key.refresh_from_db()
    return key


def _use_up_to_now(keys: list[ApiKey]) -> None:
    """A little more each day, for two months."""
    now = datetime.now(UTC)
    add_to_rollups(
        [
            Use(
                tenant_id=str(key.tenant_id),
                project_id=str(key.project_id),
                api_key_id=str(key.id),
                model="llama-3.1-8b",
                adapter="",
                tier="premium",
                arrived_ms=int((now - days * _DAY).timestamp() * 1000),
                outcome="completed",
                prompt_tokens=900_000 - 9_000 * days,
                cached_tokens=0,
                completion_tokens=240_000 - 2_000 * days,
                cost_nanos=3_400_000_000 - 40_000_000 * days,
                ttft_ms=80,
                duration_ms=2400,
            )
            for key in keys[:3]
            for days in range(60)
        ]
    )


async def _reserve(keys: list[ApiKey]) -> None:
    """Count what the pictures show as used today and this month."""
    async with Redis.from_url(servers().dispatch_redis.url) as redis:
        reservations = Reservations(redis)
        await reservations.load_functions()
        for number, (key, tokens, nanos, sequences) in enumerate(
            (
                (keys[0], 1_000_000_000, 1_240 * 10**9, 13),
                (keys[1], 91_000_000, 212 * 10**9, 4),
                (keys[2], 23_400_000, 61 * 10**9, 2),
                (keys[4], 4_100_000, 12_600_000_000, 1),
            )
        ):
            request = ReservationRequest(
                key_id=str(key.id),
                project_id=str(key.project_id),
                tokens=tokens,
                nanos=nanos,
                pool="llama-3.1-8b",
                prices=Prices(0, 0, 0, 1000),
            )
            tenant_id = str(key.tenant_id)
            await reservations.reserve(
                tenant_id, f"picture-{number}", request, _NO_LIMITS, sequences=sequences
            )
