from tenants.webhooks.models.balance import BalanceAlert
from tenants.webhooks.models.delivery import Delivery, DeliveryAttempt, DeliveryState
from tenants.webhooks.models.email import EmailNotice, EmailState
from tenants.webhooks.models.endpoint import DisabledReason, Endpoint
from tenants.webhooks.models.event import Event

__all__ = [
    "BalanceAlert",
    "Delivery",
    "DeliveryAttempt",
    "DeliveryState",
    "DisabledReason",
    "EmailNotice",
    "EmailState",
    "Endpoint",
    "Event",
]
