"""What Celery does for tenants; `control_plane/celery.py` says when."""

import time

import structlog
from celery import shared_task
from celery.exceptions import SoftTimeLimitExceeded

from tenants import fsck
from tenants.access import key_activity
from tenants.alerts import balances, quotas
from tenants.policy import writer

log = structlog.get_logger(__name__)


@shared_task(name="tenants.reconcile_policy", expires=10)  # type: ignore[untyped-decorator]
def reconcile_policy() -> bool:
    """Bring the policy snapshot back where a crash or a lost Redis left it out."""
    return writer.reconcile_policy()


@shared_task(name="tenants.delete_old_changes", expires=600)  # type: ignore[untyped-decorator]
def delete_old_changes() -> int:
    return writer.delete_old_changes()


@shared_task(name="tenants.collect_key_uses", expires=20)  # type: ignore[untyped-decorator]
def collect_key_uses() -> int:
    return key_activity.collect_key_uses()


@shared_task(name="tenants.adopt_new_digests", expires=20)  # type: ignore[untyped-decorator]
def adopt_new_digests() -> int:
    return key_activity.adopt_new_digests()


@shared_task(name="tenants.raise_quota_alerts", expires=60)  # type: ignore[untyped-decorator]
def raise_quota_alerts() -> int:
    return quotas.raise_quota_alerts()


@shared_task(name="tenants.raise_balance_alerts", expires=60)  # type: ignore[untyped-decorator]
def raise_balance_alerts() -> int:
    return balances.raise_balance_alerts()


# A large deployment takes hours, and the next night is none too late.
@shared_task(  # type: ignore[untyped-decorator]
    name="tenants.check_everything",
    expires=3600,
    soft_time_limit=6 * 3600,
    time_limit=6 * 3600 + 60,
)
def check_everything() -> dict[str, float]:
    """Run the checks of `manage.py fsck` and log what they find as they find it; return how many
    `problems` there are and how many `seconds` it took. One that is cut short says so, has not
    succeeded, and goes on with the chained logs where it was, the next time."""
    found, begun = 0, time.monotonic()
    try:
        for finding in fsck.run_checks():
            found += 1
            log.error("fsck_found_a_problem", check=finding.check, problem=finding.problem)
    except SoftTimeLimitExceeded:
        log.error("fsck_was_cut_short", problems_until_then=found)
        raise
    return {"problems": found, "seconds": time.monotonic() - begun}
