"""What a tenant can be told of, and which of its people get it by e-mail too."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tenants.permissions import Role

_ADMINS: Final = frozenset({Role.OWNER, Role.ADMIN})
_MONEY: Final = _ADMINS | {Role.BILLING}


class EventType(StrEnum):
    """As the specification has them: parts between full stops, from wide to narrow."""

    QUOTA_THRESHOLD_REACHED = "quota.threshold_reached"
    BALANCE_LOW = "balance.low"
    INVOICE_ISSUED = "invoice.issued"
    INVOICE_PAID = "invoice.paid"
    WEBHOOK_DISABLED = "webhook.disabled"
    WEBHOOK_TEST = "webhook.test"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`subject` and `sentence` are of the e-mail; the roles in `mailed_to` get it."""

    subject: str
    sentence: str
    mailed_to: frozenset[Role]


KINDS: Final[dict[EventType, Kind]] = {
    EventType.QUOTA_THRESHOLD_REACHED: Kind(
        subject="A quota is nearly used up",
        sentence="A share of a quota that you asked to be told of has been used.",
        mailed_to=_ADMINS,
    ),
    EventType.BALANCE_LOW: Kind(
        subject="Your balance is low",
        sentence="Your prepaid balance is low. Requests are refused once it is used up.",
        mailed_to=_MONEY,
    ),
    EventType.INVOICE_ISSUED: Kind(
        subject="A new invoice", sentence="An invoice has been issued.", mailed_to=_MONEY
    ),
    EventType.INVOICE_PAID: Kind(
        subject="An invoice is paid", sentence="An invoice has been paid.", mailed_to=_MONEY
    ),
    EventType.WEBHOOK_DISABLED: Kind(
        subject="A webhook endpoint was disabled",
        sentence="Deliveries to a webhook endpoint have failed for days, or it answered that it is "
        "gone. Nothing is sent to it until you enable it again; what it missed can be redelivered.",
        mailed_to=_ADMINS,
    ),
    EventType.WEBHOOK_TEST: Kind(subject="", sentence="", mailed_to=frozenset()),
}

# What an endpoint can subscribe to; a test goes to the one endpoint that is tested.
SUBSCRIBABLE: Final = tuple(kind for kind in EventType if kind is not EventType.WEBHOOK_TEST)
