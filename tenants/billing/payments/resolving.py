"""What operators make of events that did not fit the books."""

from tenants.billing.models import EventResolution, ProviderEvent
from tenants.errors import Conflict


def resolve(event: ProviderEvent, *, note: str) -> EventResolution:
    """Note what was done about a puzzling event; who it was is in the audit log. Runs in an
    `operator_scope`; raises `Conflict` where there is nothing to resolve."""
    if not ProviderEvent.objects.unresolved().filter(pk=event.pk).exists():
        raise Conflict(f"{event} waits for nobody.", code="nothing_to_resolve")
    return EventResolution.objects.create(event=event, note=note)
