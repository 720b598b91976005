"""The least that an invoice may ask for."""

from typing import Final

from django.conf import settings

from tenants.money import NANOS_PER_CENT

# Stripe charges nothing below half a dollar: it would mark the invoice paid, and put the amount on
# the customer's balance there (docs.stripe.com/currencies#minimum-and-maximum-charge-amounts).
_LEAST_CENTS: Final = {"stripe": 50}


def least_payable_nanos() -> int:
    """Return the least amount that who collects can collect; less is carried to the next
    invoice."""
    return _LEAST_CENTS.get(settings.PENSTOCK_PAYMENT_PROVIDER, 0) * NANOS_PER_CENT
