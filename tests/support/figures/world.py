"""Usage, retries, waste, labels, refusals and GPU costs of three tenants, told as workers and
gateways tell them and taken in by the collectors of the product. The same at every run, but for
when it was: in the last forty days, some of it in the last hours."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from msgspec.structs import replace
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome, Prices, TokenUsage
from gpu_workers.protocol.policy import LimitName
from gpu_workers.protocol.refusals import OTHER_MODELS, RefusalCount
from gpu_workers.protocol.usage import UsageEntry
from inference.refusals.collecting import collect_refusals
from inference.usage.collector import UsageCollector
from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Membership, Project, Quota, Tenant, User
from tenants.permissions import Role
from tests.support.figures.pool_costs import cost_something
from tests.support.projects import make_project
from tests.support.refused.on_record import a_batch, notice_of, of_key, tell
from tests.support.usage_entries import append, proven, usage_entry, waste_entry

DAYS: Final = 40
REQUESTS: Final = 240
# Acme's, of a month.
BUDGET_NANOS: Final = 12_345_678_901
POOLS: Final = {"small": "first-pool", "tiny": "first-pool", "large": "second-pool"}
# Odd on purpose: no cost is a round number of anything.
_PRICES: Final = {
    "small": Prices(137_731, 41_117, 731_173, 900),
    "tiny": Prices(13_773, 4_111, 73_117, 1000),
    "large": Prices(1_371_137, 411_171, 7_311_737, 1250),
}
_ENDS: Final = (
    *((Outcome.COMPLETED, None),) * 12,
    (Outcome.CANCELLED, None),
    (Outcome.CANCELLED, "client_gone"),
    (Outcome.REFUSED, "context_length_exceeded"),
    (Outcome.EXPIRED, "service_unavailable"),
    (Outcome.FAILED, "worker_lost"),
    (Outcome.FAILED, None),
)
_NEVER_TAKEN: Final = (Outcome.REFUSED, Outcome.EXPIRED)
_REFUSED: Final = (
    {"code": "requests_per_minute_exceeded", "limit": "requests_per_minute", "scope": "key"},
    {"code": "insufficient_quota", "limit": "spend_per_month", "scope": "project"},
    {"code": "model_not_found", "limit": "", "scope": "", "model": "(unknown)"},
)


@dataclass(frozen=True, kw_only=True)
class World:
    """`acme` has two projects and the first three of the keys, of which her admin made one;
    `globex` and `initech` have one each."""

    acme: Tenant
    globex: Tenant
    initech: Tenant
    keys: tuple[ApiKey, ...]
    admin: User
    operator: User
    refused: tuple[RefusalCount, ...]


def make_world(redis: Redis) -> World:
    """Put all of it on record; the dispatch Redis holds what was told for that long."""
    redis.flushall()
    redis.sadd(keys.known_pools(), *POOLS.values())
    draw = Random(17)
    with operator_scope("test"):
        acme, globex = make_project("Acme", "premium"), make_project("Globex", "standard")
        initech = make_project("Initech", "free")
        admin = User.objects.create_user("admin@acme.example", "correct horse battery")
        member = Membership.objects.create(tenant=acme.tenant, user=admin, role=Role.ADMIN)
        Quota.objects.create(
            tenant=acme.tenant, limit=LimitName.SPEND_PER_MONTH, value=BUDGET_NANOS
        )
        other = Project.objects.create(tenant=acme.tenant, name="second")
        all_keys = [
            issue_api_key(acme, name="laptop").record,
            issue_api_key(acme, name="by a person", by=member).record,
            issue_api_key(other, name="server").record,
            issue_api_key(globex, name="theirs").record,
            issue_api_key(initech, name="printer").record,
        ]
        operator = User.objects.create_superuser("ops@example.org", "correct horse battery")
        now = cost_something(set(POOLS.values()))
    for number in range(REQUESTS):
        serve(redis, draw, draw.choice(all_keys), _moment(draw, number, now))
    UsageCollector(redis).drain()
    counts = tuple(_refusals(draw, all_keys, now))
    notices = (notice_of(all_keys[0], now - timedelta(hours=each)) for each in range(3))
    tell(redis, a_batch(*counts, *notices))
    collect_refusals()
    redis.flushall()
    return World(
        acme=acme.tenant,
        globex=globex.tenant,
        initech=initech.tenant,
        keys=tuple(all_keys),
        admin=admin,
        operator=operator,
        refused=counts,
    )


def _moment(draw: Random, number: int, now: datetime) -> datetime:
    """Return when it was: of every third request in the last few hours, of some of them now."""
    longest = timedelta(hours=3) if number % 3 == 0 else timedelta(days=DAYS)
    return now if number % 30 == 0 else now - draw.random() * longest


def serve(redis: Redis, draw: Random, key: ApiKey, at: datetime, **changes: Any) -> None:
    """Tell of a request that arrived then, drawn but for what `changes` says of its entry."""
    model = draw.choice([*POOLS])
    outcome, code = draw.choice(_ENDS)
    is_taken = outcome not in _NEVER_TAKEN
    prompt, output = draw.randint(5, 4_000), draw.randint(2, 900) if is_taken else 0
    ttft = draw.randint(20, 9_000)
    itl = draw.uniform(2.0, 180.0)
    at_ms = int(at.timestamp() * 1000)
    entry = usage_entry(
        key,
        at_ms,
        tier=key.project.tenant.tier.name,
        service_class=key.project.tenant.tier.service_class,
        pool=POOLS[model],
        model=model,
        adapter="poems" if model == "small" and draw.random() < 0.4 else "",
        outcome=outcome,
        error_code=code,
        finish_reason="stop" if outcome is Outcome.COMPLETED else None,
        usage=TokenUsage(
            prompt_tokens=prompt,
            cached_tokens=draw.randint(0, prompt),
            completion_tokens=output,
            reasoning_tokens=output // 3,
        ),
        prices=_PRICES[model],
        finished_at_ms=at_ms + ttft + int(output * itl),
        queue_ms=draw.randint(0, ttft // 2) if is_taken else None,
        ttft_ms=ttft if is_taken else None,
        itl_p50_ms=itl if is_taken else None,
        itl_p95_ms=itl * 1.7 if is_taken else None,
        wasted_tokens=draw.randint(1, 40) if outcome is Outcome.CANCELLED else 0,
        waste_reason="client_gone" if outcome is Outcome.CANCELLED else "",
        labels=_labels(draw),
        owed=draw.random() < 0.8,
    )
    entry = proven(replace(entry, prompt_bound=0, output_bound=0, **changes))
    if is_taken and draw.random() < 0.2:
        entry = replace(entry, attempt=2)
        append(redis, _lost(draw, key, entry), pool=entry.pool)
    append(redis, entry, pool=entry.pool)


def _lost(draw: Random, key: ApiKey, entry: UsageEntry) -> Any:
    """Return the attempt before, whose worker was lost."""
    wasted = draw.randint(0, 60)
    return waste_entry(
        key,
        request_id=entry.request_id,
        tier=entry.tier,
        pool=entry.pool,
        model=entry.model,
        adapter=entry.adapter,
        completion_tokens=wasted,
        generated_tokens=wasted,
        ended_at_ms=entry.arrived_at_ms + 10,
        labels=entry.labels,
    )


def _labels(draw: Random) -> dict[str, str]:
    labels = {"user": f"user {draw.randint(1, 5)}", "metadata.team": draw.choice(["=1+1", "ops"])}
    return {name: value for name, value in labels.items() if draw.random() < 0.7}


def _refusals(draw: Random, all_keys: list[ApiKey], now: datetime) -> list[RefusalCount]:
    told = [
        of_key(
            draw.choice(all_keys),
            _moment(draw, number, now),
            draw.randint(1, 30),
            **({"model": draw.choice([*POOLS])} | draw.choice(_REFUSED)),
        )
        for number in range(60)
    ]
    rest = of_key(all_keys[0], now, 7, project_id="", api_key_id="", model=OTHER_MODELS)
    return [*told, rest]
