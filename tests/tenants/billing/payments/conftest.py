"""Stripe, on loopback."""

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from pytest_django import Settings

from tests.support.billing.stripe_api import API_KEY, StripeApi, stripe_api
from tests.support.billing.stripe_webhook import SECRET


@pytest.fixture
def api(settings: Settings) -> Iterator[StripeApi]:
    cache.clear()
    with stripe_api() as api:
        settings.PENSTOCK_PAYMENT_PROVIDER = "stripe"
        settings.PENSTOCK_STRIPE_API_KEY = API_KEY
        settings.PENSTOCK_STRIPE_WEBHOOK_SECRET = SECRET
        settings.PENSTOCK_STRIPE_API_BASE = api.url
        yield api
