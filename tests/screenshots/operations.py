"""What operators look at: a week of usage of several organisations and pools, with its cost, and
tasks of the beat, one of which is late."""

import random
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg
from control_plane.celery import BEAT_INTERVALS
from control_plane.status import background
from django.conf import settings

from inference.usage.rollups import Use, add_to_rollups
from tenants.access.api_keys import issue_api_key
from tenants.billing.models import PoolHour
from tenants.models import ApiKey
from tests.support.projects import make_project
from tests.support.servers import servers

_DAYS: Final = 7
_HOUR: Final = timedelta(hours=1)
# Organisation, tier, its requests a day.
_TENANTS: Final = (("Wayne Logistics", "premium", 300), ("Tyrell Robotics", "standard", 170),
                   ("Stark Metering", "free", 45))  # fmt: skip
# Pool, dollars an hour of one of its workers, how many it has, milliseconds to a first token.
_POOLS: Final = (
    ("llama-3.1-8b", 2.4, 2, 90),
    ("qwen-3-32b", 5.1, 3, 240),
    ("llama-3.1-70b", 1.9, 1, 0),
)


def have_operations() -> None:
    """Write it to the database and Celery's Redis; within an operator's scope."""
    dice = random.Random(17)
    for name, tier, a_day in _TENANTS:
        key = issue_api_key(make_project(name, tier)).record
        add_to_rollups([_use(key, tier, n, dice) for n in range(a_day * _DAYS)])
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for pool, _, workers, _ in _POOLS:
        hours = [
            PoolHour(pool=pool, hour=hour - n * _HOUR, worker_ms=workers * 3_600_000)
            for n in range(_DAYS * 24)
        ]
        # The fleet has been seen in some of them.
        PoolHour.objects.bulk_create(hours, ignore_conflicts=True)
    _have_costs(hour - _DAYS * 24 * _HOUR)
    _have_background()


def _have_costs(begin: datetime) -> None:
    """Enter what each pool costs since then: only PostgreSQL's superuser may do so afterwards."""
    with psycopg.connect(servers().superuser_url) as superuser:
        superuser.execute("SET session_replication_role = replica")
        for pool, dollars, *_ in _POOLS:
            superuser.execute(
                "INSERT INTO billing_poolcost"
                " (id, pool, micros_per_gpu_hour, gpus_per_worker, effective_from)"
                " VALUES (gen_random_uuid(), %s, %s, 1, %s)",
                (pool, round(dollars * 10**6), begin),
            )


def _use(key: ApiKey, tier: str, number: int, dice: random.Random) -> Use:
    pool, _, _, first_ms = _POOLS[number % 3 // 2]
    arrived = datetime.now(UTC) - timedelta(hours=number * 5 % (_DAYS * 24))
    ttft = dice.lognormvariate(0, 0.4) * first_ms
    tokens = dice.randint(100_000, 900_000)
    return Use(
        tenant_id=str(key.tenant_id), project_id=str(key.project_id), api_key_id=str(key.pk),
        tier=tier, pool=pool, model=pool, adapter="",
        service_class="batch" if number % 7 == 6 else "interactive",
        arrived_ms=int(arrived.timestamp() * 1000), outcome="completed",
        prompt_tokens=tokens, cached_tokens=tokens // 4, completion_tokens=tokens // 3,
        cost_nanos=tokens * (1_400 if pool == "llama-3.1-8b" else 3_900),
        ttft_ms=ttft, itl_ms=ttft / 9, itl_p95_ms=ttft / 5, queue_ms=ttft / 4,
        duration_ms=ttft * 30,
    )  # fmt: skip


def _have_background() -> None:
    with background.background_redis(settings.PENSTOCK_REDIS_URL) as redis:
        # Only one of them is late, however long it takes to make the pictures.
        late, now = "inference.copy_dead_letters", datetime.now(UTC)
        for task in BEAT_INTERVALS:
            background.note_success(redis, task)
            at = now - 3 * _HOUR if task == late else now + _HOUR
            redis.hset("beat:successes", task, f"{at.timestamp():.3f}")
        background.note_fsck(redis, 0, 1.0)
