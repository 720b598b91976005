"""What Celery does to tell tenants; `control_plane/celery.py` says when. These wait for other
people's servers, so they have a queue and a worker of their own: `webhooks`."""

from celery import shared_task

from tenants.webhooks import deliveries, emails, fan_out, retention


@shared_task(name="webhooks.deliver_events", expires=5)  # type: ignore[untyped-decorator]
def deliver_events() -> int:
    """Spread what is new, then send what is due; returns how many attempts were made."""
    fan_out.fan_out_events()
    return deliveries.deliver_due()


@shared_task(name="webhooks.send_emails", expires=20)  # type: ignore[untyped-decorator]
def send_emails() -> int:
    return emails.send_due()


@shared_task(name="webhooks.delete_old_events", expires=3600)  # type: ignore[untyped-decorator]
def delete_old_events() -> int:
    return retention.delete_old_events()
