"""The money of a tenant that is about to be closed: what it has used is invoiced, its credit pays,
and whoever ran its money is kept in mind until the last invoice is paid."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import structlog
from django.core.exceptions import ValidationError
from redis.exceptions import RedisError

from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.drafts import current_seller, draft_invoice
from tenants.billing.invoicing.storage import book_storage
from tenants.billing.invoicing.usage_source import usage_cutoff
from tenants.billing.ledger.credit import settle_with_credit
from tenants.billing.ledger.holds import hold
from tenants.billing.ledger.posting import lock_balances
from tenants.billing.models import (
    CREDITS,
    AccountName,
    ClosingAddress,
    Invoice,
    InvoiceState,
    Seller,
)
from tenants.billing.periods import month_of
from tenants.errors import Conflict
from tenants.models import Membership, Tenant
from tenants.money import whole_cents
from tenants.permissions import Permission, roles_with

_Pay = Callable[[int], object]

log = structlog.get_logger(__name__)
_MEMO: Final = "Settled when the organisation was closed"
_MOST_ADDRESSES: Final = 10


def settle(tenant: Tenant, now: datetime | None = None) -> None:
    """Invoice what a tenant has used up to now, of the running month too, pay it and its unpaid
    invoices with the credit that is left, and keep the addresses that the last invoice goes to.

    Runs in an `operator_scope`, before the tenant is closed. Where nobody invoices it does nothing;
    where the seller reviews drafts, the last one waits for that as every other.
    """
    now = now or datetime.now(UTC)
    try:
        seller = current_seller()
    except ValidationError:
        return
    usage_cutoff()
    is_reviewed = seller.review_days != 0
    if not is_reviewed:
        _issue_drafts(tenant.id, now)
    period = month_of(now.astimezone(UTC).date())
    book_storage([tenant.id], period)
    _pay_what_is_on_no_invoice(tenant.id)
    newest = Invoice.objects.newest_of(tenant.id)
    last = None
    if newest is None or newest.period < period:
        last = draft_invoice(tenant, period, now=now, is_last=True)
    if not is_reviewed:
        _issue_drafts(tenant.id, now)
    _pay_unpaid(tenant.id)
    waiting = Invoice.objects.filter(
        tenant=tenant.id, state__in=[InvoiceState.DRAFT, InvoiceState.ISSUED]
    )
    if last is not None or waiting.exists():
        _keep_addresses(tenant, seller)


def _issue_drafts(tenant_id: uuid.UUID, now: datetime) -> None:
    drafts = Invoice.objects.filter(tenant=tenant_id, state=InvoiceState.DRAFT)
    # One that cannot be issued now is tried again each day, as all are.
    with suppress(Conflict):
        for draft in drafts.order_by("period"):
            invoices.issue(draft.id, now=now)


def _pay_what_is_on_no_invoice(tenant_id: uuid.UUID) -> None:
    held = lock_balances([tenant_id])[tenant_id]
    asked = sum(each.unpaid_nanos for each in _unpaid(tenant_id))
    _with_credit(
        tenant_id,
        held[AccountName.RECEIVABLE] - asked,
        lambda nanos: settle_with_credit(tenant_id, nanos, memo=_MEMO),
    )


def _pay_unpaid(tenant_id: uuid.UUID) -> None:
    for invoice in _unpaid(tenant_id):
        owed_nanos = lock_balances([tenant_id])[tenant_id][AccountName.RECEIVABLE]
        _with_credit(tenant_id, min(invoice.unpaid_nanos, owed_nanos), _payer(invoice))


def _payer(invoice: Invoice) -> _Pay:
    def pay(nanos: int) -> None:
        nanos = whole_cents(nanos)
        # A provider that was asked for all of it cannot be asked for less.
        if nanos and (nanos == invoice.unpaid_nanos or not invoice.provider_reference):
            invoices.pay(
                invoice.id, nanos=nanos, provider=invoices.CREDIT, reference=f"closing {invoice}"
            )

    return pay


def _with_credit(tenant_id: uuid.UUID, owed_nanos: int, pay: _Pay) -> None:
    """Pay so much of what is owed, as far as there is credit that no open request has reserved."""
    held = lock_balances([tenant_id])[tenant_id]
    nanos = min(owed_nanos, sum(held[account] for account in CREDITS))
    if nanos <= 0:
        return
    try:
        with hold(tenant_id, nanos) as free_nanos:
            if free_nanos > 0:
                pay(free_nanos)
    except RedisError as error:
        # What is open is not known: the credit stays, and operators see that it does.
        log.warning("credit_not_settled", tenant_id=str(tenant_id), problem=str(error))


def _unpaid(tenant_id: uuid.UUID) -> list[Invoice]:
    issued = Invoice.objects.filter(tenant=tenant_id, state=InvoiceState.ISSUED)
    return list(issued.order_by("period"))


def _keep_addresses(tenant: Tenant, seller: Seller) -> None:
    """Keep who may see invoices; where nobody may, the seller hands them on."""
    for email in emails_for_invoices(tenant.id) or [seller.email]:
        if email:
            ClosingAddress.objects.get_or_create(tenant=tenant, email=email)


def emails_for_invoices(tenant_id: uuid.UUID) -> list[str]:
    """Return the addresses of members who may see invoices, the first to join first, of a closed
    tenant those that were kept; at most ten."""
    members = Membership.objects.filter(
        tenant=tenant_id, user__is_active=True, role__in=roles_with(Permission.VIEW_INVOICES)
    )
    kept = ClosingAddress.objects.filter(tenant=tenant_id).order_by("id")
    found = list(members.order_by("id").values_list("user__email", flat=True)[:_MOST_ADDRESSES])
    return found or list(kept.values_list("email", flat=True))
