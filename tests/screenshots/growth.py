"""What an organisation has after some months: keys that came and went, limits of which something is
used, usage to look at."""

import asyncio
import random
from collections.abc import Iterator
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
# Of the keys that are used: model, its requests and dollars a day, the hour (UTC) around which they
# come, milliseconds to a first token.
_USED: Final = (
    ("llama-3.1-8b", 300, 54.0, 14, 95),
    ("llama-3.1-70b", 150, 9.0, 17, 150),
    ("llama-3.1-8b", 40, 2.6, 2, 95),
)
_DAYS: Final = 60
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
    asyncio.run(_reserve(keys, _use_up_to_now(keys)))
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


def _use_up_to_now(keys: list[ApiKey]) -> list[int]:
    """A little more each day, for two months. Return the nano-dollars of each this month."""
    dice = random.Random(17)
    now = datetime.now(UTC)
    uses = [
        use
        for key, used in zip(keys, _USED, strict=False)
        for days in range(_DAYS)
        for use in _of_a_day(key, used, now, days, dice)
    ]
    add_to_rollups(uses)
    first_ms = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000
    return [
        sum(u.cost_nanos for u in uses if u.api_key_id == str(key.id) and u.arrived_ms >= first_ms)
        for key in keys[: len(_USED)]
    ]


def _of_a_day(
    key: ApiKey,
    used: tuple[str, int, float, int, int],
    now: datetime,
    days: int,
    dice: random.Random,
) -> Iterator[Use]:
    model, requests, dollars, around, first_ms = used
    day = (now - days * _DAY).replace(minute=0, second=0, microsecond=0)
    growth = (1 - days / 200) * (0.6 if day.weekday() >= 5 else 1) * dice.uniform(0.92, 1.08)
    for number in range(round(requests * growth)):
        hour = round(dice.gauss(around, 3.5)) % 24
        arrived = day.replace(hour=hour, minute=dice.randrange(60))
        if arrived > now:
            continue
        ttft = dice.lognormvariate(0, 0.25) * first_ms
        nanos = round(dollars / requests * dice.uniform(0.5, 1.5) * 10**9)
        yield Use(
            tenant_id=str(key.tenant_id),
            project_id=str(key.project_id),
            api_key_id=str(key.id),
            model=model,
            adapter="",
            tier="premium",
            arrived_ms=int(arrived.timestamp() * 1000),
            pool=model,
            service_class="interactive",
            outcome="failed" if number % 140 == 139 else "completed",
            prompt_tokens=nanos // 3_600,
            cached_tokens=nanos // 14_400,
            completion_tokens=nanos // 14_000,
            cost_nanos=nanos,
            ttft_ms=ttft,
            itl_ms=ttft / 9,
            itl_p95_ms=ttft / 5,
            queue_ms=ttft / 12,
            duration_ms=ttft * 30,
        )


async def _reserve(keys: list[ApiKey], spent: list[int]) -> None:
    """Count what the pictures show as used today and this month: `spent` nano-dollars."""
    async with Redis.from_url(servers().dispatch_redis.url) as redis:
        reservations = Reservations(redis)
        await reservations.load_functions()
        for number, (key, tokens, nanos, sequences) in enumerate(
            (
                (keys[0], 1_000_000_000, spent[0], 13),
                (keys[1], 91_000_000, spent[1], 4),
                (keys[2], 23_400_000, spent[2], 2),
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
