"""What Celery does for tenants; `control_plane/celery.py` says when."""

import structlog
from celery import shared_task

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


@shared_task(name="tenants.check_everything", expires=3600)  # type: ignore[untyped-decorator]
def check_everything() -> int:
    """Run the checks of `manage.py fsck` and log what they find; return how many problems there
    are."""
    findings = list(fsck.run_checks())
    for finding in findings:
        log.error("fsck_found_a_problem", check=finding.check, problem=finding.problem)
    return len(findings)
