"""What a payment provider is: one small protocol, and what goes through it."""

from dataclasses import dataclass
from typing import Protocol

from tenants.billing.models import Invoice


class ProviderFailed(Exception):
    """The provider could not be asked, or refused; the text says what it said."""


@dataclass(frozen=True, kw_only=True)
class PaymentRequest:
    """What the provider calls what it was asked to collect, and where the tenant can pay."""

    reference: str
    url: str


class PaymentProvider(Protocol):
    """Asked again for the same invoice it does nothing new. Raises `ProviderFailed`."""

    name: str

    def request_payment(self, invoice: Invoice) -> PaymentRequest | None:
        """Ask for what an issued invoice comes to; None where nobody can be asked."""

    def withdraw(self, invoice: Invoice) -> None:
        """Withdraw the request for payment: the invoice is void, or was paid otherwise."""
