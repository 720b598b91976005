"""Stripe's webhooks, signed as it signs them."""

import json
import time
from typing import Any

import stripe
from django.test import Client

SECRET = "whsec_abcdefghijklmnopqrstuvwxyz"
URL = "/api/v1/payments/stripe"


def signed(body: str, *, secret: str = SECRET, at: float | None = None) -> str:
    header = stripe.WebhookSignature.generate_signature_header(
        body, secret, timestamp=int(at or time.time())
    )
    return str(header)


def send(event: dict[str, Any] | str, signature: str | None = None) -> Any:
    body = event if isinstance(event, str) else json.dumps(event)
    return Client().generic(
        "POST",
        URL,
        body,
        content_type="application/json",
        headers={"stripe-signature": signed(body) if signature is None else signature},
    )
