"""The end of a month: drafts for all tenants, and their issue. Killed at any point and run again it
goes on where it was: what is drafted or issued already stays as it is."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from celery.exceptions import SoftTimeLimitExceeded
from django.core.exceptions import ValidationError

from tenants.billing.invoicing.drafts import current_seller, draft_invoices, last_month
from tenants.billing.invoicing.invoices import issue
from tenants.billing.models import Invoice, InvoiceState, SlaDecision
from tenants.billing.periods import end_of
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope

log = structlog.get_logger(__name__)

# Usage of the month's last minutes is on its way: requests end, workers send again.
GRACE: Final = timedelta(hours=6)


@dataclass(frozen=True, kw_only=True)
class MonthEnd:
    """How many invoices a run drafted and issued."""

    drafted: int = 0
    issued: int = 0


def run_month_end(now: datetime | None = None) -> MonthEnd:
    """Draft the month that is over, once the grace has passed, and issue the drafts that have
    waited for long enough. Where nobody invoices yet it does nothing."""
    now = (now or datetime.now(UTC)).astimezone(UTC)
    period = last_month(now)
    with operator_scope("month end"):
        try:
            review_days = current_seller().review_days
        except ValidationError:
            return MonthEnd()
    drafted = draft_invoices(period, now=now) if now >= end_of(period) + GRACE else 0
    if review_days is None:
        return MonthEnd(drafted=drafted)
    with operator_scope("month end"):
        # Whole days: a run that is a minute earlier than the one that drafted waits no day more.
        ripe = Invoice.objects.filter(
            state=InvoiceState.DRAFT, drafted_at__date__lte=now.date() - timedelta(review_days)
        ).exclude(sla_review__decision=SlaDecision.HELD)
        due = list(ripe.order_by("period", "buyer_name", "id").values_list("id", flat=True))
    return MonthEnd(drafted=drafted, issued=issue_drafts(due, now=now))


def issue_drafts(invoice_ids: Iterable[uuid.UUID], *, now: datetime | None = None) -> int:
    """Issue the drafts, each in a transaction of its own. One that cannot be issued keeps no other
    from it, and says why: in the operators' list, and to fsck."""
    issued = 0
    for invoice_id in invoice_ids:
        try:
            with operator_scope("invoices issue"):
                issue(invoice_id, now=now)
        except SoftTimeLimitExceeded:
            raise
        except Exception as error:  # noqa: BLE001 - the draft says what it was, and is tried again
            _record_blocked(invoice_id, error)
        else:
            issued += 1
    return issued


def _record_blocked(invoice_id: uuid.UUID, error: Exception) -> None:
    if isinstance(error, Conflict) and error.code == "sla_credit_held":
        return  # said where operators look; a draft is on its tenant's side of the audit log
    is_expected = isinstance(error, Conflict | Invoice.DoesNotExist)
    problem = str(error) if is_expected else f"{type(error).__name__}: {error}"
    log.warning(
        "invoice_not_issued",
        invoice_id=str(invoice_id),
        problem=problem,
        exc_info=None if is_expected else error,
    )
    with operator_scope("invoices issue"):
        drafts = Invoice.objects.filter(id=invoice_id, state=InvoiceState.DRAFT)
        # Tried every day, and on record once.
        drafts.exclude(blocked_reason=problem[:500]).update(blocked_reason=problem[:500])
