"""Webhooks of payment providers: verified, applied once, and all of them kept.

Genuine is what the provider's secret signed lately. An event that came before changes nothing: it
is known by its id, for ever. What is forged or was signed long ago is refused and kept too, so that
an operator sees that somebody tried. A genuine one says no more than that an object has changed:
the object is read from the provider (`stripe_changes`), so the order of events does not matter.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from redis.exceptions import RedisError

from tenants.billing.models import ProviderEvent, Verdict
from tenants.billing.payments.contract import ProviderFailed
from tenants.billing.payments.stripe_changes import STRIPE, Change, read_change
from tenants.isolation.scoping import operator_scope

log = structlog.get_logger(__name__)

# How old a signature may be: Stripe's own recommendation. It signs anew each time that it sends.
TOLERANCE_SECONDS: Final = 300
_KEPT_OF_FORGED: Final = 2000
_MAX_FORGED_A_DAY: Final = 1000


@dataclass(frozen=True, kw_only=True)
class Received:
    """What became of a webhook. One that is not `is_accepted` the sender is told was refused; one
    that `is_to_come_again` could not be looked into, and is not kept."""

    verdict: Verdict
    reason: str
    is_to_come_again: bool = False

    @property
    def is_accepted(self) -> bool:
        return self.verdict not in {Verdict.FORGED, Verdict.STALE}


def is_stripe_expected() -> bool:
    return bool(settings.PENSTOCK_STRIPE_WEBHOOK_SECRET)


def receive_stripe_event(body: bytes, signature: str, address: str | None) -> Received:
    """Handle one webhook of Stripe: its raw body and its header `Stripe-Signature`."""
    text = body.decode("utf-8", errors="replace")
    event = _event(text)
    with operator_scope("stripe webhook"):
        refused = _signature_problem(text, signature)
        if event is None or refused is not None:
            no_event = Received(verdict=Verdict.FORGED, reason="It is no event of Stripe's.")
            refused = refused or no_event
            _keep_refused(refused, event or {}, text, address)
            return refused
        if _is_known(event):
            return _keep_again(event, text, address)
    try:
        # No transaction is open while Stripe is asked.
        change = read_change(event)
        with operator_scope("stripe webhook"):
            return _once(event, change, text, address)
    except (ProviderFailed, RedisError) as error:
        log.warning("payment_event_not_read", event_id=event["id"], problem=str(error))
        return Received(verdict=Verdict.IGNORED, reason=str(error)[:500], is_to_come_again=True)


def _signature_problem(text: str, signature: str) -> Received | None:
    import stripe

    secret = settings.PENSTOCK_STRIPE_WEBHOOK_SECRET
    if not signature.isascii():
        return Received(verdict=Verdict.FORGED, reason="The signature is not in ASCII.")
    try:
        stripe.WebhookSignature.verify_header(text, signature, secret, tolerance=None)
    except stripe.SignatureVerificationError as error:
        return Received(verdict=Verdict.FORGED, reason=str(error)[:500])
    # The one that was signed, as the library finds it: the first, and spaces are part of a name.
    parts = [part.split("=") for part in signature.split(",")]
    signed_at = next(int(part[1]) for part in parts if part[0] == "t")
    age = time.time() - signed_at
    if abs(age) > TOLERANCE_SECONDS:
        return Received(
            verdict=Verdict.STALE,
            reason=f"It was signed {age:.0f} s ago; {TOLERANCE_SECONDS} s are allowed.",
        )
    return None


def _is_known(event: Mapping[str, Any]) -> bool:
    known = ProviderEvent.objects.filter(
        provider=STRIPE, event_id=str(event["id"]), verdict__in=ProviderEvent.GENUINE
    )
    return known.exists()


def _once(event: Mapping[str, Any], change: Change, text: str, address: str | None) -> Received:
    if not _is_known(event):
        try:
            with transaction.atomic():
                outcome = change()
                received = Received(verdict=outcome.verdict, reason=outcome.reason[:500])
                _keep(received, event, text, address)
                return received
        except IntegrityError:
            # The same event at the same time: whoever was first has done what there was to do.
            log.info("payment_event_came_twice", event_id=str(event["id"]))
    return _keep_again(event, text, address)


def _keep_again(event: Mapping[str, Any], text: str, address: str | None) -> Received:
    again = Received(verdict=Verdict.REPLAYED, reason="This event came before.")
    _keep(again, event, text[:_KEPT_OF_FORGED], address)
    return again


def _keep_refused(
    received: Received, event: Mapping[str, Any], text: str, address: str | None
) -> None:
    """Store a refused event, up to a number a day: a flood must not fill the table, and the log has
    the rest."""
    log.warning(
        "payment_event_refused",
        verdict=received.verdict.value,
        reason=received.reason,
        address=address,
    )
    day = timezone.now() - timedelta(days=1)
    refused = [Verdict.FORGED, Verdict.STALE]
    recent = ProviderEvent.objects.filter(verdict__in=refused, received_at__gt=day)
    if recent.count() < _MAX_FORGED_A_DAY:
        _keep(received, event, text[:_KEPT_OF_FORGED], address)


def _keep(received: Received, event: Mapping[str, Any], text: str, address: str | None) -> None:
    ProviderEvent.objects.create(
        provider=STRIPE,
        event_id=_printable(event.get("id", ""))[:200],
        kind=_printable(event.get("type", ""))[:100],
        verdict=received.verdict,
        reason=received.reason,
        address=address or "",
        body=_printable(text),
    )


def _event(text: str) -> dict[str, Any] | None:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_one = isinstance(event, dict) and isinstance(event.get("id"), str) and bool(event["id"])
    return event if is_one else None


def _printable(text: object) -> str:
    """Return what of a text PostgreSQL can store."""
    return str(text).replace("\x00", "\\0").encode(errors="replace").decode()
