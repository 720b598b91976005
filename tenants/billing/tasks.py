"""What Celery does for money; `control_plane/celery.py` says when."""

from datetime import datetime

from celery import shared_task

from tenants.billing.invoicing import last_mails, month_end
from tenants.billing.ledger import credit, holds, spend, waiting
from tenants.billing.payments import providers


@shared_task(name="billing.expire_promotions", expires=600)  # type: ignore[untyped-decorator]
def expire_promotions() -> int:
    return credit.expire_promotions()


@shared_task(name="billing.reconcile_spend", expires=60)  # type: ignore[untyped-decorator]
def reconcile_spend() -> None:
    spend.reconcile_spend()


@shared_task(name="billing.post_usage", expires=60)  # type: ignore[untyped-decorator]
def post_usage() -> int:
    """Post the usage that has waited for a minute; return of how many tenants."""
    return waiting.post_due()


@shared_task(name="billing.release_stale_holds", expires=60)  # type: ignore[untyped-decorator]
def release_stale_holds() -> int:
    return holds.release_stale_holds()


# Longer than others: it is made for thousands of tenants, and goes on where it was cut short.
@shared_task(  # type: ignore[untyped-decorator]
    name="billing.run_month_end", expires=3600, soft_time_limit=3300, time_limit=3600
)
def run_month_end(now: datetime | None = None) -> int:
    """Draft and issue what is due; return how many invoices were issued."""
    return month_end.run_month_end(now).issued


@shared_task(name="billing.request_payments", expires=50)  # type: ignore[untyped-decorator]
def request_payments() -> int:
    """Ask for what is to be paid, and send the invoices of closed tenants, which name the page."""
    asked = providers.request_payments()
    last_mails.send_last_invoices()
    return asked
