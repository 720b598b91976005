"""GET audit: who did what to which record of the tenant, and when. Nothing changes it."""

from typing import Any, ClassVar, Final

from rest_framework.response import Response

from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import TenantView
from tenants.models import AuditEvent
from tenants.pagination import NEWEST_SEQUENCE_FIRST, Order, page
from tenants.permissions import Permission

_ORDER: Final = Order(name="audit events", fields=NEWEST_SEQUENCE_FIRST, is_descending=True)


class AuditEventsView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_AUDIT}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self) -> Response:
        rows = AuditEvent.objects.select_related("personal")
        found = page(rows, _ORDER, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered)


def _rendered(event: AuditEvent) -> dict[str, Any]:
    """Render an event. Fields that named a person are empty once it was erased."""
    personal = getattr(event, "personal", None)
    return {
        "object": "audit.event",
        "id": event.id,
        "sequence": event.sequence,
        "at": event.at,
        "verb": event.verb,
        "actor": {
            "kind": event.actor_kind,
            "id": event.actor_id,
            "name": personal.actor_name if personal else "",
            "address": personal.address if personal else "",
        },
        "record": {
            "kind": event.record_kind,
            "id": event.record_id,
            "name": personal.record_name if personal else "",
        },
        "changes": event.changed_fields,
        "hash": bytes(event.hash).hex(),
    }
