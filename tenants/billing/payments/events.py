"""Webhooks of payment providers: verified, applied once, and all of them kept.

Genuine is what the provider's secret signed lately. An event that came before changes nothing: it
is known by its id, for ever. What is forged or was signed long ago is refused and kept too, so that
an operator sees that somebody tried.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.billing.invoicing import invoices
from tenants.billing.models import Invoice, ProviderEvent, Verdict
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope
from tenants.money import NANOS_PER_CENT

log = structlog.get_logger(__name__)

STRIPE: Final = "stripe"
# How old a signature may be: Stripe's own recommendation. It signs anew each time that it sends.
TOLERANCE_SECONDS: Final = 300
_KEPT_OF_FORGED: Final = 2000
_MAX_FORGED_A_DAY: Final = 1000


@dataclass(frozen=True, kw_only=True)
class Received:
    """What became of a webhook. One that is not `is_accepted` the sender is told was refused."""

    verdict: Verdict
    reason: str

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
        if refused is not None:
            received = refused
        elif event is None:
            received = Received(verdict=Verdict.FORGED, reason="It is no event of Stripe's.")
        else:
            return _once(event, text, address)
        _keep_refused(received, event or {}, text, address)
        return received


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


def _once(event: Mapping[str, Any], text: str, address: str | None) -> Received:
    event_id = str(event["id"])
    known = ProviderEvent.objects.filter(
        provider=STRIPE, event_id=event_id, verdict__in=ProviderEvent.GENUINE
    )
    if not known.exists():
        try:
            with transaction.atomic():
                received = _apply(event)
                _keep(received, event, text, address)
                return received
        except IntegrityError:
            # The same event at the same time: whoever was first has done what there was to do.
            log.info("payment_event_came_twice", event_id=event_id)
    again = Received(verdict=Verdict.REPLAYED, reason="This event came before.")
    _keep(again, event, text[:_KEPT_OF_FORGED], address)
    return again


def _apply(event: Mapping[str, Any]) -> Received:
    if event.get("type") != "invoice.paid":
        return Received(verdict=Verdict.IGNORED, reason="")
    if event.get("account"):
        return Received(verdict=Verdict.PUZZLING, reason="It is of an account connected to ours.")
    paid = _part(_part(event, "data"), "object")
    number = _part(paid, "metadata").get("penstock_invoice")
    if not number:
        return Received(verdict=Verdict.IGNORED, reason="It is about no invoice of ours.")
    try:
        invoice = Invoice.objects.get(id=number)
    except (Invoice.DoesNotExist, ValidationError, ValueError):
        return Received(verdict=Verdict.PUZZLING, reason=f"There is no invoice {number!r}."[:500])
    expected = invoice.payable_nanos // NANOS_PER_CENT
    found = (paid.get("amount_paid"), paid.get("currency"))
    if found != (expected, "usd"):
        return Received(
            verdict=Verdict.PUZZLING,
            reason=f"{invoice} asks for {expected} usd cents, paid were {found[0]} {found[1]}."[
                :500
            ],
        )
    try:
        invoices.pay(
            invoice.id,
            reference=str(paid.get("id")),
            provider=STRIPE,
            received_at=_moment(event.get("created")),
        )
    except (Conflict, ValidationError) as error:
        return Received(verdict=Verdict.PUZZLING, reason=str(error)[:500])
    return Received(verdict=Verdict.APPLIED, reason=f"{invoice} is paid.")


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


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object within an object, an empty one where there is none."""
    part = whole.get(name)
    return part if isinstance(part, dict) else {}


def _moment(seconds: object) -> datetime:
    return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, int) else timezone.now()


def _printable(text: object) -> str:
    """Return what of a text PostgreSQL can store."""
    return str(text).replace("\x00", "\\0").encode(errors="replace").decode()
