"""Operators hold the SLA credit of a draft while they look into it, and release or refuse it.

A draft whose credit is held is not issued. The tenant is told nothing of it until that is decided:
the decision is a row of operators alone, and on their side of the audit log.
"""

import uuid
from collections.abc import Iterator

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from tenants.billing.invoicing.least_payable import least_payable_nanos
from tenants.billing.models import Invoice, LineKind, SlaDecision, SlaReview
from tenants.errors import Conflict


def hold_credit(invoice_id: uuid.UUID, *, reason: str) -> SlaReview:
    """Keep a draft from being issued until its SLA credit is released or refused. Raises `Conflict`
    where it is no draft or gives no such credit, `ValidationError` without a reason. As the others,
    runs in an `operator_scope`."""
    with transaction.atomic():
        invoice = _locked(invoice_id)
        if not invoice.lines.filter(kind=LineKind.SLA_CREDIT).exists():
            raise Conflict("This draft gives no SLA credit.", code="no_sla_credit")
        return _decide(invoice, SlaDecision.HELD, reason)


def release_credit(invoice_id: uuid.UUID, *, reason: str) -> SlaReview:
    """Let a draft be issued with the SLA credit that was held. Raises `Conflict` where none is
    held."""
    with transaction.atomic():
        invoice = _locked(invoice_id)
        check_not_held(invoice, otherwise=True)
        return _decide(invoice, SlaDecision.RELEASED, reason)


def refuse_credit(invoice_id: uuid.UUID, *, reason: str) -> SlaReview:
    """Take its SLA credit off a draft, held or not. Raises `Conflict` as `hold_credit`."""
    with transaction.atomic():
        invoice = _locked(invoice_id)
        found = list(invoice.lines.order_by("position"))
        refused = [line for line in found if line.kind == LineKind.SLA_CREDIT]
        if not refused:
            raise Conflict("This draft gives no SLA credit.", code="no_sla_credit")
        review = _decide(invoice, SlaDecision.REFUSED, reason)
        invoice.lines.filter(kind=LineKind.SLA_CREDIT).delete()
        left = [line for line in found if line.kind != LineKind.SLA_CREDIT]
        invoice.add_up(left, least_nanos=least_payable_nanos())
        invoice.save()
        return review


def check_not_held(invoice: Invoice, *, otherwise: bool = False) -> None:
    """Raise `Conflict` where the SLA credit is held; with `otherwise`, where it is not."""
    is_held = SlaReview.objects.filter(invoice=invoice, decision=SlaDecision.HELD).exists()
    if is_held and not otherwise:
        raise Conflict(
            "Its SLA credit is held: release or refuse it first.", code="sla_credit_held"
        )
    if otherwise and not is_held:
        raise Conflict("No SLA credit of this draft is held.", code="no_sla_credit_held")


def hold_problems() -> Iterator[str]:
    """Report drafts that wait for somebody to decide on their SLA credit."""
    held = SlaReview.objects.filter(decision=SlaDecision.HELD).select_related("invoice")
    for review in held.order_by("decided_at"):
        invoice = review.invoice
        yield (
            f"Draft {invoice.id} of {invoice.month}, tenant {invoice.tenant_id}, waits: its SLA "
            f"credit is held since {review.decided_at:%Y-%m-%d}: {review.reason}"
        )


def _decide(invoice: Invoice, decision: SlaDecision, reason: str) -> SlaReview:
    reason = reason.strip()
    if not reason:
        raise ValidationError({"reason": ValidationError("Say why.", code="required")})
    review, _ = SlaReview.objects.update_or_create(
        invoice=invoice,
        defaults={"decision": decision, "reason": reason, "decided_at": timezone.now()},
    )
    return review


def _locked(invoice_id: uuid.UUID) -> Invoice:
    invoice = Invoice.objects.select_for_update(of=("self",)).get(id=invoice_id)
    if not invoice.is_draft:
        raise Conflict(
            f"{invoice} is {invoice.state}; only of a draft can SLA credit be decided.",
            code="invoice_state",
            params={"state": invoice.state},
        )
    return invoice
