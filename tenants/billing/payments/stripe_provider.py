"""Stripe, through its own library (`penstock[stripe]`).

An issued invoice becomes an invoice there with one item, finalized at once, which the tenant pays
on Stripe's page. Each call bears an idempotency key of ours, so that one made again after a crash
does nothing new. A webhook says that something has changed, and what is read here says what.
"""

import uuid
from collections.abc import Callable
from typing import Any, Final, TypeVar

import stripe
from django.conf import settings
from stripe.params import CustomerCreateParams

from tenants.billing.invoicing.last_invoice import emails_for_invoices
from tenants.billing.models import Invoice, ProviderCustomer
from tenants.billing.payments.contract import PaymentRequest, ProviderFailed
from tenants.billing.payments.stripe_objects import (
    StripeInvoice,
    StripeReversal,
    dispute_of,
    invoice_of,
    refund_of,
)
from tenants.isolation.scoping import operator_scope
from tenants.money import NANOS_PER_CENT

_T = TypeVar("_T")
_TIMEOUT_SECONDS: Final = 20


class Stripe:
    name = "stripe"

    def __init__(self, *, api_key: str, api_base: str) -> None:
        self._client = stripe.StripeClient(
            api_key,
            base_addresses={"api": api_base},
            max_network_retries=2,
            http_client=stripe.RequestsClient(timeout=_TIMEOUT_SECONDS),
        ).v1

    @classmethod
    def from_settings(cls) -> "Stripe":
        return cls(
            api_key=settings.PENSTOCK_STRIPE_API_KEY, api_base=settings.PENSTOCK_STRIPE_API_BASE
        )

    def request_payment(self, invoice: Invoice) -> PaymentRequest:
        customer = self._customer_of(invoice)
        made = _call(
            lambda: self._client.invoices.create(
                params={
                    "customer": customer,
                    "currency": "usd",
                    "collection_method": "send_invoice",
                    "days_until_due": max(0, invoice.seller.payment_terms_days),
                    "auto_advance": False,
                    "pending_invoice_items_behavior": "exclude",
                    "description": f"{invoice.number}, {invoice.month}",
                    "metadata": {
                        "penstock_invoice": str(invoice.id),
                        "penstock_number": str(invoice.number),
                    },
                },
                options=_idempotent(invoice.id, "invoice"),
            )
        )
        _call(
            lambda: self._client.invoice_items.create(
                params={
                    "customer": customer,
                    "invoice": str(made.id),
                    "currency": "usd",
                    "amount": invoice.unpaid_nanos // NANOS_PER_CENT,
                    "description": f"Invoice {invoice.number}",
                },
                options=_idempotent(invoice.id, "item"),
            )
        )
        final = _call(
            lambda: self._client.invoices.finalize_invoice(
                str(made.id),
                params={"auto_advance": False},
                options=_idempotent(invoice.id, "finalize"),
            )
        )
        return PaymentRequest(reference=str(final.id), url=final.hosted_invoice_url or "")

    def withdraw(self, invoice: Invoice) -> None:
        """What is paid or void there already stays so: its events say it."""
        try:
            _call(
                lambda: self._client.invoices.void_invoice(
                    invoice.provider_reference, options=_idempotent(invoice.id, "void")
                )
            )
        except ProviderFailed:
            found = self.read_invoice(invoice.provider_reference)
            if found is not None and found.status == "open":
                raise

    # What is there ------------------------------------------------------------------------------

    def read_invoice(self, reference: str) -> StripeInvoice | None:
        """Return an invoice and what has paid it; None where there is none. So do the others."""
        found = _read(
            lambda: self._client.invoices.retrieve(reference, params={"expand": ["payments"]})
        )
        return None if found is None else _call(lambda: invoice_of(found))

    def read_refund(self, reference: str) -> StripeReversal | None:
        found = _read(lambda: self._client.refunds.retrieve(reference))
        return None if found is None else refund_of(found, self._paid_by(found))

    def read_dispute(self, reference: str) -> StripeReversal | None:
        found = _read(lambda: self._client.disputes.retrieve(reference))
        return None if found is None else dispute_of(found, self._paid_by(found))

    def _paid_by(self, found: stripe.Refund | stripe.Dispute) -> list[str]:
        """Return the invoices that the charge of a refund or dispute has paid."""
        intent = found.payment_intent
        if intent is None:
            return []
        named = intent if isinstance(intent, str) else intent.id
        paid = _call(
            lambda: self._client.invoice_payments.list(
                params={"payment": {"type": "payment_intent", "payment_intent": named}}
            )
        )
        invoices = [each.invoice for each in paid.data]
        return [each if isinstance(each, str) else str(each.id) for each in invoices]

    def _customer_of(self, invoice: Invoice) -> str:
        with operator_scope("payment requests"):
            known = ProviderCustomer.objects.filter(
                tenant=invoice.tenant_id, provider=self.name
            ).first()
            emails = emails_for_invoices(invoice.tenant_id) or [invoice.seller.email]
        email = emails[0]
        if not email:
            raise ProviderFailed(
                f"{invoice.tenant_id} has no member who may see invoices, and the seller no "
                "e-mail address: Stripe needs one."
            )
        # Stripe sends nothing, and finalizes no invoice that is sent, to a customer without one.
        if known is not None:
            _call(
                lambda: self._client.customers.update(
                    known.reference, params={"name": invoice.buyer_name, "email": email}
                )
            )
            return known.reference
        made = _call(
            lambda: self._client.customers.create(
                params=CustomerCreateParams(
                    name=invoice.buyer_name,
                    email=email,
                    metadata={"penstock_tenant": str(invoice.tenant_id)},
                ),
                options=_idempotent(invoice.tenant_id, "customer"),
            )
        )
        with operator_scope("payment requests"):
            customer, _ = ProviderCustomer.objects.get_or_create(
                tenant_id=invoice.tenant_id,
                provider=self.name,
                defaults={"reference": str(made.id)},
            )
        return customer.reference


def _idempotent(record_id: uuid.UUID, what: str) -> Any:
    return {"idempotency_key": f"penstock-{record_id}-{what}"}


def _read(call: Callable[[], _T]) -> _T | None:
    try:
        return _call(call)
    except ProviderFailed as error:
        if getattr(error.__cause__, "code", None) == "resource_missing":
            return None
        raise


def _call(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except stripe.StripeError as error:
        # Its text names no secret: keys come back masked.
        raise ProviderFailed(error.user_message or str(error)) from error
