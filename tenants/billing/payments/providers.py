"""Having issued invoices paid, by the payment provider that a deployment has
(`PENSTOCK_PAYMENT_PROVIDER`): `manual`, where an operator records what the bank reports, or
`stripe`."""

from typing import Final

import structlog
from django.conf import settings
from django.db.models import Exists, OuterRef, Q

from tenants.billing.invoicing.least_payable import least_payable_nanos
from tenants.billing.models import Invoice, InvoiceState, Payment
from tenants.billing.payments.contract import PaymentProvider, PaymentRequest, ProviderFailed
from tenants.isolation.scoping import operator_scope

log = structlog.get_logger(__name__)


class Manual:
    """Nobody is asked: an operator marks an invoice paid, with the bank's reference."""

    name = "manual"

    def request_payment(self, invoice: Invoice) -> PaymentRequest | None:
        return None

    def withdraw(self, invoice: Invoice) -> None:
        return None


_MANUAL: Final = Manual()


def current_provider() -> PaymentProvider:
    if settings.PENSTOCK_PAYMENT_PROVIDER == "stripe":
        # Its library is an extra.
        from tenants.billing.payments.stripe_provider import Stripe

        return Stripe.from_settings()
    return _MANUAL


def request_payments(provider: PaymentProvider | None = None) -> int:
    """Ask the provider to collect each issued invoice that it was not asked for, and withdraw those
    that are void or were paid otherwise; return for how many invoices it was asked. What fails is
    tried again the next time. No transaction is open while the provider is asked."""
    provider = provider or current_provider()
    if provider.name == _MANUAL.name:
        return 0
    with operator_scope("payment requests"):
        invoices = Invoice.objects.select_related("tenant", "seller")
        due = list(
            invoices.filter(
                state=InvoiceState.ISSUED,
                provider_reference="",
                payable_nanos__gte=least_payable_nanos(),
            )
        )
        by_it = Payment.objects.filter(invoice=OuterRef("pk"), provider=provider.name)
        paid_otherwise = Q(state=InvoiceState.PAID) & ~Exists(by_it)
        over = invoices.filter(Q(state=InvoiceState.VOID) | paid_otherwise, provider=provider.name)
        withdrawn = list(over.exclude(payment_url=""))
    return sum([_request(provider, invoice) for invoice in due]) + sum(
        [_withdraw(provider, invoice) for invoice in withdrawn]
    )


def _request(provider: PaymentProvider, invoice: Invoice) -> bool:
    try:
        asked = provider.request_payment(invoice)
    except ProviderFailed as error:
        log.error("payment_request_failed", invoice=str(invoice), problem=str(error))
        return False
    if asked is None:
        return False
    with operator_scope("payment requests"):
        Invoice.objects.filter(pk=invoice.pk, provider_reference="").update(
            provider=provider.name, provider_reference=asked.reference, payment_url=asked.url
        )
    return True


def _withdraw(provider: PaymentProvider, invoice: Invoice) -> bool:
    try:
        provider.withdraw(invoice)
    except ProviderFailed as error:
        log.error("payment_withdrawal_failed", invoice=str(invoice), problem=str(error))
        return False
    with operator_scope("payment requests"):
        Invoice.objects.filter(pk=invoice.pk).update(payment_url="")
    return True
