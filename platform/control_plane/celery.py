"""Celery: what is done in the background, and how often.

A task that nobody ran in time is dropped (`expires`): the next beat makes it good.
"""

import os
from typing import Any

from celery import Celery
from celery.schedules import crontab
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")

app = Celery("penstock")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
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
    "uploads of adapters are not forgotten": {
        "task": "adapters.ask_for_forgotten",
        "schedule": 60.0,
    },
    "blobs on no record are deleted": {
        "task": "inference.sweep_blobs",
        "schedule": 3600.0,
    },
    "old policy changes are deleted": {
        "task": "tenants.delete_old_changes",
        "schedule": 3600.0,
    },
    "the months to come have their partitions": {
        "task": "inference.make_usage_partitions",
        "schedule": 6 * 3600.0,
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
    "operators see the dead letters": {
        "task": "inference.copy_dead_letters",
        "schedule": 10.0,
    },
    "operators see the workers": {
        "task": "inference.copy_workers",
        "schedule": 5.0,
    },
    "gateways are recorded, so that a lost Redis waits for all": {
        "task": "inference.copy_gateways",
        "schedule": 5.0,
    },
}


@setup_logging.connect  # type: ignore[untyped-decorator]
def _keep_our_logging(**_: Any) -> None:
    """Do nothing: while this is connected, Celery leaves Django's logging alone."""
