"""What Celery does for money; `control_plane/celery.py` says when."""

from celery import shared_task

from tenants.billing import balances, credit


@shared_task(name="billing.expire_promotions", expires=600)  # type: ignore[untyped-decorator]
def expire_promotions() -> int:
    return credit.expire_promotions()


@shared_task(name="billing.release_withdrawals", expires=60)  # type: ignore[untyped-decorator]
def release_withdrawals() -> int:
    return balances.release_withdrawals()
