"""The invoices of closed tenants, sent as files to whoever ran their money: nobody can sign in to
read them any more."""

import smtplib
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.db.models import Exists, OuterRef, Q

from tenants.billing.invoicing.invoices import MANUAL
from tenants.billing.invoicing.pdf import pdf_bytes
from tenants.billing.models import ClosingAddress, Invoice, InvoiceState
from tenants.isolation.scoping import operator_scope
from tenants.money import dollars_and_cents

log = structlog.get_logger(__name__)

# Sent with its page for payment, if there is to be one, which the provider is asked for meanwhile.
_WAITS_FOR_PAGE: Final = timedelta(hours=1)
# Invoiced at the closing itself.
_JUST_BEFORE: Final = timedelta(hours=1)
# Usage may come late, and is invoiced at the end of a month.
_KEPT_FOR: Final = timedelta(days=45)
_MOST: Final = 20
_FIRST_DELAY: Final = timedelta(minutes=5)
_LONGEST_DELAY: Final = timedelta(days=1)


def send_last_invoices(now: datetime | None = None) -> int:
    """Send what each address has not had yet, one invoice each; return how many were sent. What
    fails is tried again, at least once a day. Deletes the addresses that are needed no longer."""
    now = now or datetime.now(UTC)
    _forget(now)
    with operator_scope("last invoices"):
        due = ClosingAddress.objects.filter(next_try_at__lte=now).select_related("tenant")
        waiting = [(each, _next_for(each, now)) for each in due.order_by("next_try_at")[:_MOST]]
        # Read in the scope, sent outside of it: no transaction is open meanwhile.
        mails = [(each, invoice, _message(each, invoice)) for each, invoice in waiting if invoice]
    return sum([_send(address, invoice, mail, now) for address, invoice, mail in mails])


def _next_for(address: ClosingAddress, now: datetime) -> Invoice | None:
    closed_at = address.tenant.closed_at or now
    found = Invoice.objects.filter(
        Q(state=InvoiceState.ISSUED) | Q(issued_at__gte=closed_at - _JUST_BEFORE),
        tenant=address.tenant_id,
        state__in=[InvoiceState.ISSUED, InvoiceState.PAID],
    )
    if address.told_until is not None:
        found = found.filter(issued_at__gt=address.told_until)
    if settings.PENSTOCK_PAYMENT_PROVIDER != MANUAL:
        asked = ~Q(payment_url="") | Q(state=InvoiceState.PAID)
        found = found.filter(asked | Q(issued_at__lt=now - _WAITS_FOR_PAGE))
    return found.select_related("tenant", "seller").order_by("issued_at").first()


def _message(address: ClosingAddress, invoice: Invoice) -> EmailMessage:
    is_paid = invoice.state == InvoiceState.PAID
    left = invoice.unpaid_nanos
    to_pay = (
        "It is paid." if is_paid else f"To pay: {dollars_and_cents(left)}, by {invoice.due_on}."
    )
    lines = [
        f"This is invoice {invoice.number} of {invoice.buyer_name} for {invoice.month}. The "
        "organisation is closed, so it comes by e-mail, as a file.",
        to_pay,
    ]
    if invoice.payment_url and not is_paid:
        lines.append(f"Pay here: {invoice.payment_url}")
    lines.append(
        "Your address is deleted once nothing is left to pay. Questions: "
        f"{invoice.seller.email or invoice.seller.name}."
    )
    mail = EmailMessage(
        subject=" ".join(f"Invoice {invoice.number} of {invoice.buyer_name}".split()),
        body="\n\n".join(lines) + "\n",
        to=[address.email],
        headers={"Auto-Submitted": "auto-generated"},
    )
    mail.attach(f"{invoice.number}.pdf", pdf_bytes(invoice), "application/pdf")
    return mail


def _send(address: ClosingAddress, invoice: Invoice, mail: EmailMessage, now: datetime) -> bool:
    problem = ""
    try:
        with get_connection(timeout=settings.EMAIL_TIMEOUT) as connection:
            mail.connection = connection
            mail.send()
    except (smtplib.SMTPException, OSError, ValueError) as error:
        # Its text may hold the address.
        problem = type(error).__name__
    if problem:
        delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2**address.tries)
        changes = {"tries": address.tries + 1, "next_try_at": now + delay}
    else:
        changes = {"tries": 0, "next_try_at": now, "told_until": invoice.issued_at}
    with operator_scope("last invoices"):
        ClosingAddress.objects.filter(pk=address.pk).update(**changes)
    told = log.warning if problem else log.info
    told("last_invoice", invoice=str(invoice), address_id=address.pk, problem=problem)
    return not problem


def _forget(now: datetime) -> None:
    with operator_scope("last invoices"):
        waiting = Invoice.objects.filter(
            tenant=OuterRef("tenant"), state__in=[InvoiceState.DRAFT, InvoiceState.ISSUED]
        )
        settled = ClosingAddress.objects.filter(
            ~Exists(waiting), tenant__closed_at__lt=now - _KEPT_FOR
        )
        settled.delete()
