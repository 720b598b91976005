"""What tenants are told, as it leaves with one, and what fsck asks of it."""

from typing import Final

from tenants.fsck import whole
from tenants.offboarding.export import rows_of
from tenants.permissions import Permission
from tenants.rooms import Room
from tenants.webhooks.deliveries import overdue_problems
from tenants.webhooks.models import BalanceAlert, Delivery, Endpoint, Event
from tenants.webhooks.retention import erase_tenant

ROOM: Final = Room(
    exports={
        "webhook_endpoint": (rows_of(Endpoint), Permission.VIEW_WEBHOOKS),
        "balance_alert": (rows_of(BalanceAlert), Permission.VIEW_BALANCE),
        "webhook_event": (rows_of(Event), Permission.VIEW_WEBHOOKS),
        "webhook_delivery": (rows_of(Delivery), Permission.VIEW_WEBHOOKS),
    },
    erasers=(erase_tenant,),  # addresses of its own, and e-mails to its people
    checks={"webhooks": whole(overdue_problems)},
)
