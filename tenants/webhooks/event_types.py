"""The events that a tenant is notified of, and the roles that get them by e-mail."""

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
    ADAPTER_LIVE = "adapter.live"
    ADAPTER_REFUSED = "adapter.refused"
    WEBHOOK_DISABLED = "webhook.disabled"
    OPERATOR_ENTERED = "operator.entered"
    WEBHOOK_TEST = "webhook.test"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`subject` and `sentence` are of the e-mail; the roles in `mailed_to` get it, those too who
    want no alerts where it `is_always_mailed`."""

    subject: str
    sentence: str
    mailed_to: frozenset[Role]
    is_always_mailed: bool = False


KINDS: Final[dict[EventType, Kind]] = {
    EventType.QUOTA_THRESHOLD_REACHED: Kind(
        subject="A quota is nearly used up",
        sentence="Usage has reached an alert threshold of a quota.",
        mailed_to=_ADMINS,
    ),
    EventType.BALANCE_LOW: Kind(
        subject="Your balance is low",
        sentence="Your prepaid balance is low. Requests are refused once it is used up.",
        mailed_to=_MONEY,
    ),
    EventType.INVOICE_ISSUED: Kind(
        subject="New invoice", sentence="An invoice has been issued.", mailed_to=_MONEY
    ),
    EventType.INVOICE_PAID: Kind(
        subject="Invoice paid", sentence="An invoice has been paid.", mailed_to=_MONEY
    ),
    # Whoever uploads sees it there and then; a script that does has its webhook.
    EventType.ADAPTER_LIVE: Kind(
        subject="An adapter is live",
        sentence="A worker has loaded a version of an adapter for the first time.",
        mailed_to=frozenset(),
    ),
    EventType.ADAPTER_REFUSED: Kind(
        subject="An adapter was refused",
        sentence="A version of an adapter cannot answer requests.",
        mailed_to=frozenset(),
    ),
    EventType.WEBHOOK_DISABLED: Kind(
        subject="A webhook endpoint was disabled",
        sentence="Deliveries to a webhook endpoint have failed for days, or it answered 410 Gone. "
        "Nothing is sent to it until you enable it again; missed events can be redelivered.",
        mailed_to=_ADMINS,
    ),
    EventType.OPERATOR_ENTERED: Kind(
        subject="An operator acts as a member",
        sentence="An operator of the service sees your organisation's pages as a member for a "
        "while. What they do stands in the audit log under their name.",
        mailed_to=frozenset({Role.OWNER}),
        is_always_mailed=True,
    ),
    EventType.WEBHOOK_TEST: Kind(subject="", sentence="", mailed_to=frozenset()),
}

# What an endpoint can subscribe to; a test goes to the one endpoint that is tested.
SUBSCRIBABLE: Final = tuple(kind for kind in EventType if kind is not EventType.WEBHOOK_TEST)
