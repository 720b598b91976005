"""Celery: what is done in the background, and how often.

A task that nobody ran in time is dropped (`expires`): the next beat makes it good.
"""

import os
from functools import cache
from typing import Any, Final

import structlog
from celery import Celery
from celery.schedules import crontab
from celery.signals import beat_init, celeryd_init, setup_logging, task_success
from redis import Redis
from redis.exceptions import RedisError

from control_plane.database_roles import work_in_background
from control_plane.process_limits import forbid_core_dumps
from control_plane.status.background import background_redis, note_fsck, note_success

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")

_log = structlog.get_logger(__name__)

app = Celery("penstock")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["control_plane.status"])
app.conf.beat_schedule = {
    "the policy snapshot follows the database": {
        "task": "tenants.reconcile_policy",
        "schedule": 3.0,
    },
    "Redis has its functions": {
        "task": "inference.restore_functions",
        "schedule": 2.0,
    },
    "keys show when they were last used": {
        "task": "tenants.collect_key_uses",
        "schedule": 20.0,
    },
    "keys move to a new pepper": {
        "task": "tenants.adopt_new_digests",
        "schedule": 20.0,
    },
    "alerts of quotas that are nearly used up are sent": {
        "task": "tenants.raise_quota_alerts",
        "schedule": 60.0,
    },
    "alerts of low balances are sent": {
        "task": "tenants.raise_balance_alerts",
        "schedule": 60.0,
    },
    "webhooks are delivered": {
        "task": "webhooks.deliver_events",
        "schedule": 5.0,
    },
    "e-mail notices are sent": {
        "task": "webhooks.send_emails",
        "schedule": 20.0,
    },
    "old webhook events are deleted": {
        "task": "webhooks.delete_old_events",
        "schedule": crontab(hour=3, minute=41),
    },
    "credit that was given away ends": {
        "task": "billing.expire_promotions",
        "schedule": 1800.0,
    },
    "usage that waits is posted to the ledger": {
        "task": "billing.post_usage",
        "schedule": 60.0,
    },
    "spend in Redis is reconciled with the ledger": {
        "task": "billing.reconcile_spend",
        "schedule": 60.0,
    },
    "stale holds on credit are released": {
        "task": "billing.release_stale_holds",
        "schedule": 300.0,
    },
    "old answers of the management API are deleted": {
        "task": "inference.forget_idempotent_calls",
        "schedule": crontab(minute=17),
    },
    "late uploads end": {
        "task": "inference.expire_uploads",
        "schedule": 300.0,
    },
    "workers find adapters": {
        "task": "inference.sync_adapters",
        "schedule": 30.0,
    },
    "what workers say of adapters is on record": {
        "task": "inference.note_adapters_on_workers",
        "schedule": 5.0,
    },
    "uploads of adapters are not forgotten": {
        "task": "adapters.requeue_stalled_validations",
        "schedule": 60.0,
    },
    "blobs on no record are deleted": {
        "task": "inference.sweep_blobs",
        "schedule": 3600.0,
    },
    # Each hour is noted once: what was missed at first is noted later in it.
    "what tenants keep is on record": {
        "task": "inference.note_storage",
        "schedule": 900.0,
    },
    "old policy changes are deleted": {
        "task": "tenants.delete_old_changes",
        "schedule": 3600.0,
    },
    "the months to come have their partitions": {
        "task": "inference.make_usage_partitions",
        "schedule": 6 * 3600.0,
    },
    "the costs of days that are over are dealt out": {
        "task": "inference.deal_out_days",
        "schedule": crontab(minute=23),
    },
    "what must hold is checked at night": {
        "task": "tenants.check_everything",
        "schedule": crontab(hour=3, minute=17),
    },
    # Each day: what was cut short, or waits for a review to end, goes on.
    "months that are over are invoiced": {
        "task": "billing.run_month_end",
        "schedule": crontab(hour=6, minute=7),
    },
    "issued invoices are collected": {
        "task": "billing.request_payments",
        "schedule": 60.0,
    },
    "requests of dead gateways end": {
        "task": "inference.end_abandoned_requests",
        "schedule": 5.0,
    },
    "frames that nobody reads expire": {
        "task": "inference.expire_unread_frames",
        "schedule": 600.0,
    },
    "reservations without a request are released": {
        "task": "inference.sweep_reservations",
        "schedule": 10.0,
    },
    "refused requests are counted": {
        "task": "inference.collect_refusals",
        "schedule": 5.0,
    },
    "operators see the dead letters": {
        "task": "inference.copy_dead_letters",
        "schedule": 10.0,
    },
    "operators see the workers": {
        "task": "inference.copy_workers",
        "schedule": 5.0,
    },
    "metrics show what PostgreSQL alone knows": {
        "task": "control_plane.count_for_metrics",
        "schedule": 15.0,
    },
    "gateways are recorded, so that a lost Redis waits for all": {
        "task": "inference.copy_gateways",
        "schedule": 5.0,
    },
}


def _interval_seconds(schedule: float | crontab) -> float:
    """Return how often a schedule of ours runs a task: every so many seconds, or at times of a
    day."""
    if isinstance(schedule, crontab):
        return 86_400.0 / (len(schedule.hour) * len(schedule.minute))
    return schedule


_FSCK_TASK: Final = "tenants.check_everything"
# Seconds between two runs of each task of the beat.
BEAT_INTERVALS: Final = {
    entry["task"]: _interval_seconds(entry["schedule"]) for entry in app.conf.beat_schedule.values()
}


@task_success.connect  # type: ignore[untyped-decorator]
def _note_success(sender: Any, result: Any = None, **_: Any) -> None:
    """Note that a task of the beat has succeeded, for /metrics, and what fsck has found; one whose
    note is lost is none that has failed."""
    if sender.name not in BEAT_INTERVALS:
        return
    try:
        note_success(_other_redis(), sender.name)
        if sender.name == _FSCK_TASK:
            note_fsck(_other_redis(), result["problems"], result["seconds"])
    except (RedisError, OSError) as error:
        _log.warning("success_not_noted", task=sender.name, reason=repr(error))


@cache
def _other_redis() -> Redis:
    from django.conf import settings

    return background_redis(settings.PENSTOCK_REDIS_URL)


@celeryd_init.connect  # type: ignore[untyped-decorator]
def _take_time(**_: Any) -> None:
    work_in_background()


@celeryd_init.connect  # type: ignore[untyped-decorator]
@beat_init.connect  # type: ignore[untyped-decorator]
def _leave_no_core(**_: Any) -> None:
    forbid_core_dumps()


@setup_logging.connect  # type: ignore[untyped-decorator]
def _keep_our_logging(**_: Any) -> None:
    """Do nothing: while this is connected, Celery leaves Django's logging alone."""
