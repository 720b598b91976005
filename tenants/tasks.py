"""What Celery does for tenants; `control_plane/celery.py` says when."""

from celery import shared_task

from tenants import policy


@shared_task(name="tenants.reconcile_policy", expires=10)  # type: ignore[untyped-decorator]
def reconcile_policy() -> bool:
    """Bring the policy snapshot back where a crash or a lost Redis left it out."""
    return policy.reconcile_policy()
