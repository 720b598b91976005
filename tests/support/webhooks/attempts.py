"""An event to deliver, and attempts of it that fail."""

from datetime import UTC, datetime

from tenants.models import Project
from tenants.webhooks.deliveries import (
    claim_due,
    record,
)
from tenants.webhooks.event_types import EventType
from tenants.webhooks.events import publish
from tenants.webhooks.models import Delivery
from tenants.webhooks.problems import Problem
from tenants.webhooks.sending import Outcome

NOW = datetime.now(UTC)
PAID = EventType.INVOICE_PAID
DATA = {"invoice_id": "2026-0001", "amount_nanos": 12_500_000_000}


def tell(acme: Project, key: str = "invoice 1", kind: EventType = PAID) -> None:
    publish(acme.tenant_id, kind, DATA, key=key)


def failed(problem: Problem = Problem.STATUS, status: int | None = 500) -> Outcome:
    return Outcome(started_at=NOW, duration_ms=3, status_code=status, problem=problem)


def fail_until_given_up(now: datetime) -> datetime:
    """All tries of the one delivery that is pending; returns when the last was."""
    while True:
        (job,) = claim_due(now)
        record(job, failed(), now)
        delivery = Delivery.objects.get(pk=job.delivery_id)
        if delivery.next_attempt_at is None:
            return now
        now = delivery.next_attempt_at
