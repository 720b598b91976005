"""Endpoints as a tenant's people set them, and what they can ask for. Call these inside the
tenant's scope."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from django.core.exceptions import ValidationError

from tenants.errors import Conflict
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.isolation.scoping import operator_scope
from tenants.models import Cap, Tenant, check_cap
from tenants.webhooks import addresses, deliveries, signing
from tenants.webhooks.event_types import SUBSCRIBABLE, EventType
from tenants.webhooks.models import (
    Delivery,
    DeliveryState,
    DisabledReason,
    Endpoint,
    Event,
)

MAX_TESTS_AN_HOUR: Final = 60
LONGEST_OVERLAP: Final = timedelta(days=7)


@dataclass(frozen=True, kw_only=True)
class NewSecret:
    """An endpoint and its secret, which is shown this once."""

    endpoint: Endpoint
    secret: signing.Secret


def add_endpoint(
    tenant: Tenant,
    *,
    url: str,
    event_types: Sequence[str] | None = None,
    description: str = "",
    unreachable: ValidationError | None = None,
) -> NewSecret:
    """Create an endpoint; return it with its secret. `unreachable` is what `unreachable_reason`
    said of the URL before the transaction began. Raises it, `ValidationError` that names the field,
    and `CapReached` where the tier allows no more."""
    _check_url(url, unreachable)
    _check_event_types(event_types)
    check_cap(tenant.pk, Cap.WEBHOOKS, present=Endpoint.objects.filter(tenant=tenant))
    endpoint = Endpoint(
        tenant=tenant,
        url=url,
        event_types=None if event_types is None else sorted(set(event_types)),
        description=description.strip(),
    )
    secret = signing.new_secret(endpoint.pk, bytes(endpoint.salt))
    endpoint.check_digest = secret.check_digest
    endpoint.full_clean(validate_unique=False, validate_constraints=False)
    endpoint.save(force_insert=True)
    return NewSecret(endpoint=endpoint, secret=secret)


def unreachable_reason(tenant_id: uuid.UUID, url: str) -> ValidationError | None:
    """Ask the DNS where a URL of the tenant leads, and return what speaks against sending there.
    Takes seconds where no answer comes: call it while no transaction is open."""
    try:
        addresses.check_reachable(url, owner=str(tenant_id))
    except addresses.Refused as error:
        return _refused(error)
    return None


def change_endpoint(
    endpoint: Endpoint, *, unreachable: ValidationError | None = None, **fields: object
) -> Endpoint:
    """Change those of `url`, `event_types`, `description` and `is_enabled` that are given. Raises
    as `add_endpoint` does."""
    endpoint = locked(endpoint.pk)
    is_enabled = fields.pop("is_enabled", endpoint.is_enabled)
    if "url" in fields:
        _check_url(str(fields["url"]), unreachable)
    if "event_types" in fields:
        wanted: Sequence[str] | None = fields["event_types"]  # type: ignore[assignment]
        _check_event_types(wanted)
        fields["event_types"] = None if wanted is None else sorted(set(wanted))
    if "description" in fields:
        fields["description"] = str(fields["description"]).strip()
    for name, value in fields.items():
        setattr(endpoint, name, value)
    endpoint.full_clean(validate_unique=False, validate_constraints=False)
    endpoint.save(update_fields=list(fields))
    if is_enabled and not endpoint.is_enabled:
        enable(endpoint)
    elif endpoint.is_enabled and not is_enabled:
        deliveries.disable(endpoint, DisabledReason.BY_HAND, datetime.now(UTC))
    return endpoint


def enable(endpoint: Endpoint) -> None:
    """Enable an endpoint with a clean record; what it missed is not sent by itself. The caller has
    locked it."""
    endpoint.is_enabled, endpoint.disabled_reason = True, ""
    endpoint.disabled_at = endpoint.failing_since = None
    endpoint.save(update_fields=["is_enabled", "disabled_reason", "disabled_at", "failing_since"])


def rotate_secret(endpoint: Endpoint, *, overlap: timedelta) -> NewSecret:
    """Make a new secret and return it; for `overlap` more, deliveries are signed with the one
    before it as well. Raises `ValidationError` for a longer overlap than a week."""
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        too_long = ValidationError("The overlap is at most 7 days.", code="out_of_range")
        raise ValidationError({"overlap_seconds": too_long})
    with audited_as(Verb.ROTATED):
        endpoint = locked(endpoint.pk)
        now = datetime.now(UTC)
        endpoint.previous_salt = bytes(endpoint.salt)
        endpoint.previous_check_digest = bytes(endpoint.check_digest)
        endpoint.previous_expires_at = now + overlap
        endpoint.salt = signing.new_salt()
        secret = signing.new_secret(endpoint.pk, endpoint.salt)
        endpoint.check_digest = secret.check_digest
        endpoint.rotated_at = now
        endpoint.save()
    return NewSecret(endpoint=endpoint, secret=secret)


def remove_endpoint(endpoint: Endpoint) -> None:
    """Delete an endpoint with its deliveries and their log."""
    # Also against whoever makes deliveries for it right now.
    endpoint = Endpoint.objects.select_for_update(of=("self",)).get(pk=endpoint.pk)
    # The log is not a tenant's to delete, but where its endpoint goes it goes with it.
    with operator_scope("removal of a webhook endpoint"):
        endpoint.delete()


def send_test(endpoint: Endpoint) -> Delivery:
    """Queue a test event for the endpoint, whatever it has subscribed to. Raises `Conflict` if it
    is disabled, or was tested too often."""
    endpoint = _enabled(endpoint)
    now = datetime.now(UTC)
    tests = Delivery.objects.filter(endpoint=endpoint, event__type=EventType.WEBHOOK_TEST)
    if tests.filter(created_at__gt=now - timedelta(hours=1)).count() >= MAX_TESTS_AN_HOUR:
        raise Conflict(
            f"There were {MAX_TESTS_AN_HOUR} tests in the last hour; wait a little.",
            code="too_many_tests",
        )
    event = Event.objects.create(
        tenant_id=endpoint.tenant_id,
        type=EventType.WEBHOOK_TEST.value,
        key=str(uuid.uuid4()),
        data={"endpoint_id": endpoint.pk, "message": "A test of this webhook endpoint."},
        occurred_at=now,
        fanned_out_at=now,
    )
    return Delivery.objects.create(
        tenant_id=endpoint.tenant_id, event=event, endpoint=endpoint, next_attempt_at=now
    )


def redeliver(delivery: Delivery) -> Delivery:
    """Send it again from now on, with all its tries, whether it was taken or not; under the same
    `webhook-id`. Raises `Conflict` where the endpoint is disabled."""
    _enabled(delivery.endpoint)
    delivery = Delivery.objects.select_for_update(of=("self",)).get(pk=delivery.pk)
    delivery.state = DeliveryState.PENDING.value
    delivery.tries, delivery.finished_at = 0, None
    delivery.next_attempt_at = datetime.now(UTC)
    delivery.save(update_fields=["state", "tries", "finished_at", "next_attempt_at"])
    return delivery


def locked(endpoint_id: uuid.UUID) -> Endpoint:
    """Lock the endpoint until the transaction ends, and return it as it is now."""
    return Endpoint.objects.select_for_update(no_key=True, of=("self",)).get(pk=endpoint_id)


def _enabled(endpoint: Endpoint) -> Endpoint:
    endpoint = locked(endpoint.pk)
    if not endpoint.is_enabled:
        raise Conflict(
            "This webhook endpoint is disabled; enable it first.", code="endpoint_disabled"
        )
    return endpoint


def _check_url(url: str, unreachable: ValidationError | None) -> None:
    try:
        addresses.check_text(url)
    except addresses.Refused as error:
        raise _refused(error) from None
    if unreachable is not None:
        raise unreachable


def _refused(error: addresses.Refused) -> ValidationError:
    return ValidationError({"url": ValidationError(str(error), code=error.code)})


def _check_event_types(event_types: Sequence[str] | None) -> None:
    if event_types is None:
        return
    known = ", ".join(SUBSCRIBABLE)
    if not event_types:
        raise ValidationError({"event_types": f"Name one or more of {known}; null is all."})
    for kind in event_types:
        if kind not in SUBSCRIBABLE:
            raise ValidationError(
                {"event_types": f"There is no event type {kind[:60]!r}; there is {known}."}
            )
