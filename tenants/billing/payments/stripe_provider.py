"""Stripe, through its own library (`penstock[stripe]`).

An issued invoice becomes an invoice there with one item, finalized at once, which the tenant pays
on Stripe's page. Each call bears an idempotency key of ours, so that one made again after a crash
does nothing new. A webhook reports the payment: see `events`.
"""

import uuid
from collections.abc import Callable
from typing import Any, Final, TypeVar

import stripe
from django.conf import settings
from stripe.params import CustomerCreateParams

from tenants.billing.models import Invoice, ProviderCustomer
from tenants.billing.payments.contract import PaymentRequest, ProviderFailed
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
                    "amount": invoice.payable_nanos // NANOS_PER_CENT,
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
        _call(
            lambda: self._client.invoices.void_invoice(
                invoice.provider_reference, options=_idempotent(invoice.id, "void")
            )
        )

    def _customer_of(self, invoice: Invoice) -> str:
        with operator_scope("payment requests"):
            known = ProviderCustomer.objects.filter(
                tenant=invoice.tenant_id, provider=self.name
            ).first()
        if known is not None:
            return known.reference
        made = _call(
            lambda: self._client.customers.create(
                params=CustomerCreateParams(
                    name=invoice.buyer_name,
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


def _call(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except stripe.StripeError as error:
        # Its text names no secret: keys come back masked.
        raise ProviderFailed(error.user_message or str(error)) from error
