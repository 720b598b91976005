"""manage.py webhooks list Acme | test <endpoint> | redeliver <delivery>"""

import uuid
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from tenants.management.look_up import tenant_named
from tenants.management.reporting import Fact, ReportingCommand
from tenants.webhooks.endpoints import redeliver, send_test
from tenants.webhooks.models import Delivery, Endpoint

_WHAT = {
    "list": "a tenant's name or id",
    "log": "the id of an endpoint",
    "test": "the id of an endpoint",
    "redeliver": "the id of a delivery",
}
_SHOWN = 50


class Command(ReportingCommand):
    help = (
        "Webhooks of a tenant: list its endpoints, show the newest deliveries to one, send it a "
        "test, or redeliver what it missed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", choices=list(_WHAT))
        parser.add_argument("of", help="; ".join(f"{verb}: {what}" for verb, what in _WHAT.items()))

    def handle(self, *_: Any, **options: Any) -> None:
        of = options["of"]
        match options["action"]:
            case "list":
                endpoints = Endpoint.objects.filter(tenant=tenant_named(of))
                self.report_rows(
                    options, [_endpoint(endpoint) for endpoint in endpoints], of="webhooks"
                )
            case "log":
                rows = Delivery.objects.filter(endpoint=_found(Endpoint, of))
                newest = rows.select_related("event")[:_SHOWN]
                self.report_rows(
                    options, [_delivery(delivery) for delivery in newest], of="deliveries"
                )
            case "test":
                self.report(options, **_delivery(send_test(_found(Endpoint, of))))
            case _:
                self.report(options, **_delivery(redeliver(_found(Delivery, of))))


def _found(model: type[Any], text: str) -> Any:
    try:
        record = model.objects.filter(pk=uuid.UUID(text)).first()
    except (ValueError, ValidationError):
        record = None
    if record is None:
        raise CommandError(f"No {model._meta.verbose_name} {text!r}.")
    return record


def _endpoint(endpoint: Endpoint) -> dict[str, Fact]:
    return {
        "endpoint_id": str(endpoint.id),
        "url": endpoint.url,
        "event_types": "all" if endpoint.event_types is None else ",".join(endpoint.event_types),
        "is_enabled": endpoint.is_enabled,
        "disabled_reason": endpoint.disabled_reason,
        "failing_since": endpoint.failing_since,
    }


def _delivery(delivery: Delivery) -> dict[str, Fact]:
    return {
        "delivery_id": str(delivery.id),
        "type": delivery.event.type,
        "state": str(delivery.state),
        "attempts": delivery.attempts,
        "last_status_code": delivery.last_status_code,
        "last_problem": delivery.last_problem,
        "next_attempt_at": delivery.next_attempt_at,
        "created_at": delivery.created_at,
    }
