"""What needs attention of the service: workers, queues, requests, targets, usage, background."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import Count, Min, Q, Sum
from django.urls import reverse
from django.utils import timezone

from control_plane.celery import BEAT_INTERVALS
from control_plane.live.dispatch_redis import dashboards_redis
from control_plane.operator_site.dashboards.attainment import burning
from control_plane.operator_site.dashboards.attention.concern import Concern, many
from control_plane.operator_site.dashboards.fleet import LOST_SINCE, identity_words
from control_plane.status.background import background_redis, beat_tasks, last_fsck
from inference.models import DeadLetter, UsageQuarantine, Worker
from inference.models.fleet import SEEN_RECENTLY
from inference.models.refusal import RefusalRollup
from inference.models.usage import QuarantineCause
from inference.operations.fleet import read_fleet
from inference.operations.queues import read_queues
from inference.usage.pools.rebuild import HOUR, are_complete

# Refusals of an hour are a peak from so many on, at so many times the mean of the day before.
PEAK_REFUSALS: Final = 100
PEAK_TIMES: Final = 3
_REFUSED_LATELY: Final = timedelta(hours=1)
# fsck runs each night.
_FSCK_SECONDS: Final = 2 * 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def of_fleet() -> Iterator[Concern]:
    now = timezone.now()
    for worker in Worker.objects.lost(now - LOST_SINCE, now):
        yield Concern(
            what=f"Worker {worker.name} of pool {worker.pool} is lost",
            since=worker.last_seen_at,
            advice=f"Read its log on {worker.host}, and start it again.",
            link=reverse("admin:inference_worker_change", args=[worker.pk]),
            is_bad=True,
        )
    live = Worker.objects.filter(last_seen_at__gt=now - SEEN_RECENTLY, has_left=False)
    for worker in live.exclude(problem="", warning=""):
        told = worker.problem or worker.warning
        yield Concern(
            what=f"Worker {worker.name} of pool {worker.pool}: {told}",
            advice="It takes no requests." if worker.problem else "It still takes requests.",
            link=reverse("admin:inference_worker_change", args=[worker.pk]),
            is_bad=bool(worker.problem),
        )


def of_pools() -> Iterator[Concern]:
    now = timezone.now()
    with dashboards_redis() as redis:
        fleet = read_fleet(redis)
    for pool in fleet:
        if pool.problem:
            yield Concern(
                what=f"Pool {pool.name}: {pool.problem[0].lower()}{pool.problem[1:]}",
                advice="Somebody may have got into one of its workers, or one is of another "
                "version. Stop them, give the pool another password (manage.py redis_acl), and "
                "start them.",
                link=reverse("admin:dashboard-fleet"),
                is_bad=True,
            )
        last = pool.identity.last_refused
        if last is not None and now - last.at < _REFUSED_LATELY:
            yield Concern(
                what=f"Pool {pool.name} refused worker {last.name}: it brings "
                f"{identity_words(last.engine, last.digest)}, and the pool serves "
                f"{identity_words(pool.identity.engine, pool.identity.digest)}",
                since=last.at,
                advice="Correct its command line; or, if the pool is to serve that, run "
                f"manage.py pin_pool {pool.name} --next.",
                link=reverse("admin:dashboard-fleet"),
                is_bad=True,
            )
        for worker in pool.workers:
            info = worker.info
            if worker.is_live and pool.identity.differs_from(info.engine, info.model_digest):
                yield Concern(
                    what=f"Worker {info.name} of pool {pool.name} serves "
                    f"{identity_words(info.engine, info.model_digest)}, and the pool "
                    f"{identity_words(pool.identity.engine, pool.identity.digest)}",
                    advice="Drain it, unless it is to be replaced anyway.",
                    link=reverse("admin:inference_worker_change", args=[info.worker_id]),
                    is_bad=True,
                )


def of_queues() -> Iterator[Concern]:
    now = timezone.now()
    with dashboards_redis() as redis:
        queues = read_queues(redis)
    for queue in queues:
        if queue.queued and not queue.slots:
            waited = timedelta(milliseconds=queue.oldest_ms or 0)
            waiting = many(queue.queued, "request")
            yield Concern(
                what=f"Pool {queue.name}: {waiting} waiting, and no worker is ready",
                since=now - waited,
                advice="Start a worker of this pool.",
                link=reverse("admin:dashboard-queue"),
                is_bad=True,
            )


def of_requests() -> Iterator[Concern]:
    letters = DeadLetter.objects.filter(is_kept=True).aggregate(n=Count("pk"), at=Min("died_at"))
    if letters["n"]:
        yield Concern(
            what=many(letters["n"], "dead letter"),
            since=letters["at"],
            advice="Each is a request that every worker died with: retry or discard it.",
            link=reverse("admin:inference_deadletter_changelist") + "?is_kept__exact=1",
            is_bad=True,
        )
    yield from _refusal_peak()


def of_targets() -> Iterator[Concern]:
    for each in burning(timezone.now()):
        hours = "hour" if each.is_fast else "24 hours"
        yield Concern(
            what=f"Tier {each.tier} misses its target of {each.promise}",
            advice=f"In the last {hours} {each.burn_rate:,.1f} times as many missed it as may.",
            link=reverse("admin:dashboard-attainment"),
            is_bad=each.is_fast,
        )


def of_usage() -> Iterator[Concern]:
    invalid = Q(cause=QuarantineCause.INVALID)
    distrusted = UsageQuarantine.objects.exclude(invalid).aggregate(
        n=Count("pk"), at=Min("quarantined_at")
    )
    if distrusted["n"]:
        yield Concern(
            what=many(
                distrusted["n"],
                "usage entry that no gateway vouches for",
                "usage entries that no gateway vouches for",
            ),
            since=distrusted["at"],
            advice="They are not billed. Somebody may have got into a worker: see the pool and "
            "the reason of each.",
            link=reverse("admin:inference_usagequarantine_changelist")
            + "?cause__in="
            + ",".join(each for each in QuarantineCause.values if each != QuarantineCause.INVALID),
            is_bad=True,
        )
    entries = UsageQuarantine.objects.filter(invalid).aggregate(
        n=Count("pk"), at=Min("quarantined_at")
    )
    if entries["n"]:
        yield Concern(
            what=many(entries["n"], "quarantined usage entry", "quarantined usage entries"),
            since=entries["at"],
            advice="They are not billed: see the reason of each.",
            link=reverse("admin:inference_usagequarantine_changelist"),
            is_bad=True,
        )
    if not are_complete(_EPOCH):
        yield Concern(
            what="Earlier usage is not summed up by pool",
            advice="Run manage.py rebuild_usage_sums; until then margins of then are refused.",
            link=reverse("admin:inference_usagerecord_changelist"),
        )


def of_background() -> Iterator[Concern]:
    now, link = time.time(), reverse("admin:index")
    with background_redis(settings.PENSTOCK_REDIS_URL) as redis:
        tasks, fsck = beat_tasks(redis, BEAT_INTERVALS), last_fsck(redis)
    if all(task.succeeded_at is None for task in tasks):
        yield Concern(
            what="No background task has ever succeeded",
            advice="Start Celery and its beat.",
            link=link,
            is_bad=True,
        )
    else:
        for task in tasks:
            if task.is_late(now):
                yield Concern(
                    what=f"The background task {task.name} is late",
                    since=_moment(task.succeeded_at),
                    advice="Read the log of the Celery workers and of the beat.",
                    link=link,
                    is_bad=True,
                )
    noted_since = tasks[0].noted_since
    if fsck is None and noted_since is not None and now - noted_since > _FSCK_SECONDS:
        yield Concern(
            what="fsck has not ended",
            advice="It runs each night; run manage.py fsck.",
            link=link,
        )
    elif fsck is not None and fsck.problems:
        yield Concern(
            what=f"fsck found {many(fsck.problems, 'problem')}",
            since=_moment(fsck.at),
            advice="Run manage.py fsck to see each.",
            link=link,
            is_bad=True,
        )


def _refusal_peak() -> Iterator[Concern]:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    sums: dict[str, Any] = RefusalRollup.objects.filter(hour__gte=hour - 25 * HOUR).aggregate(
        now=Sum("count", filter=Q(hour__gte=hour - HOUR)),
        before=Sum("count", filter=Q(hour__lt=hour - HOUR)),
    )
    refusals, mean = int(sums["now"] or 0), int(sums["before"] or 0) / 24
    if refusals >= PEAK_REFUSALS and refusals > PEAK_TIMES * mean:
        yield Concern(
            what=f"{refusals:,} refusals since {hour - HOUR:%H:%M} UTC; the hours before had "
            f"{mean:,.0f} on average",
            since=hour - HOUR,
            advice="See by which code and of whom.",
            link=reverse("admin:dashboard-refusals"),
        )


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
