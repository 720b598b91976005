"""E-mails about events, in plain text, to members whose roles are notified of such events.

A notice is leased before it is sent, so that several workers can share the work; if its worker
dies, it is sent again with the same Message-ID. A tenant, and an address whoever mails to it, get a
bounded number of e-mails an hour; what is beyond that waits, and is given up after a day.
"""

import smtplib
import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parseaddr
from typing import Any, Final

import structlog
from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.db.models import F

from tenants.isolation.scoping import operator_scope
from tenants.money import dollars
from tenants.names import as_mailed
from tenants.webhooks.event_types import KINDS, EventType
from tenants.webhooks.models import EmailNotice, EmailState, Event

log = structlog.get_logger(__name__)

# 1 min, 4 min, 16 min, … 17 h: seven tries in a day.
MAX_TRIES: Final = 7
FIRST_DELAY: Final = timedelta(minutes=1)
DELAY_FACTOR: Final = 4
# Of an event's data, what people of the tenant have written.
_CHOSEN: Final = frozenset({"name", "description", "note", "memo", "reason"})
LEASE: Final = timedelta(minutes=10)
_SENT_AT_ONCE: Final = 20
_HOUR: Final = timedelta(hours=1)
EMAILS_OF_A_TENANT_AN_HOUR: Final = 60
EMAILS_TO_AN_ADDRESS_AN_HOUR: Final = 20
# One that the limits have held up for so long is news no more.
LONGEST_WAIT: Final = timedelta(days=1)


def send_due(now: datetime | None = None) -> int:
    """Send the notices that are due, at most `_SENT_AT_ONCE`; return how many were sent."""
    now = now or datetime.now(UTC)
    notices = claim_due(now)
    sent = 0
    for notice in notices:
        problem = _send(notice)
        _record(notice, problem, now)
        sent += problem is None
    return sent


def claim_due(now: datetime) -> list[EmailNotice]:
    """Return a few notices that are due; nobody else sends these before the lease runs out."""
    with operator_scope("e-mail notices"):
        room = _Room(now)
        due = EmailNotice.objects.filter(state=EmailState.PENDING, next_try_at__lte=now)
        due.filter(created_at__lt=now - LONGEST_WAIT, tries=0).update(
            state=EmailState.FAILED, next_try_at=None, problem="TooMany"
        )
        found = (
            due.exclude(tenant__in=room.full_tenants)
            .exclude(membership__user__in=room.full_users)
            .select_related("event", "membership__user", "tenant")
            .order_by("next_try_at")
            .select_for_update(skip_locked=True, of=("self",))[:_SENT_AT_ONCE]
        )
        taken = [notice for notice in found if room.take(notice)]
        EmailNotice.objects.filter(pk__in=[notice.pk for notice in taken]).update(
            tries=F("tries") + 1, next_try_at=now + LEASE
        )
    for notice in taken:
        notice.tries += 1
    return taken


class _Room:
    """How many e-mails each tenant and each address may still get in the hour that ends now."""

    def __init__(self, now: datetime) -> None:
        recent = EmailNotice.objects.filter(state=EmailState.SENT, sent_at__gt=now - _HOUR)
        sent = list(recent.values_list("tenant_id", "membership__user_id"))
        self._of_tenants = Counter(tenant for tenant, _ in sent)
        self._to_users = Counter(user for _, user in sent)

    @property
    def full_tenants(self) -> list[uuid.UUID]:
        counts = self._of_tenants.items()
        return [tenant for tenant, count in counts if count >= EMAILS_OF_A_TENANT_AN_HOUR]

    @property
    def full_users(self) -> list[uuid.UUID]:
        counts = self._to_users.items()
        return [user for user, count in counts if count >= EMAILS_TO_AN_ADDRESS_AN_HOUR]

    def take(self, notice: EmailNotice) -> bool:
        """Count an e-mail more; return False where there is no room for it."""
        tenant, user = notice.tenant_id, notice.membership.user_id
        is_full = (
            self._of_tenants[tenant] >= EMAILS_OF_A_TENANT_AN_HOUR
            or self._to_users[user] >= EMAILS_TO_AN_ADDRESS_AN_HOUR
        )
        if not is_full:
            self._of_tenants[tenant] += 1
            self._to_users[user] += 1
        return not is_full


def _send(notice: EmailNotice) -> str | None:
    """Send a notice; return the error's class, as its text may hold the address, or None."""
    message = as_message(notice)
    try:
        with get_connection(timeout=settings.EMAIL_TIMEOUT) as connection:
            message.connection = connection
            message.send()
    except smtplib.SMTPResponseException as error:
        return f"{type(error).__name__} {error.smtp_code}"
    except (smtplib.SMTPException, OSError, ValueError) as error:
        return type(error).__name__
    return None


def _record(notice: EmailNotice, problem: str | None, now: datetime) -> None:
    changes: dict[str, Any] = {"problem": problem or ""}
    if problem is None:
        changes |= {"state": EmailState.SENT, "sent_at": now, "next_try_at": None}
    elif notice.tries >= MAX_TRIES:
        changes |= {"state": EmailState.FAILED, "next_try_at": None}
    else:
        delay = FIRST_DELAY * DELAY_FACTOR ** (notice.tries - 1)
        changes |= {"next_try_at": now + delay}
    with operator_scope("e-mail notices"):
        EmailNotice.objects.filter(pk=notice.pk).update(**changes)
    log_line = log.info if problem is None else log.warning
    log_line(
        "email_notice",
        notice_id=str(notice.pk),
        tenant_id=str(notice.tenant_id),
        type=notice.event.type,
        attempt=notice.tries,
        problem=problem,
    )


# The message ------------------------------------------------------------------------------------


def as_message(notice: EmailNotice) -> EmailMessage:
    """Return the e-mail of a notice; the same notice always has the same Message-ID."""
    event, organisation = notice.event, as_mailed(notice.tenant.name)
    kind = KINDS[EventType(event.type)]
    facts = "\n".join(f"  {name}: {value}" for name, value in _facts(event.data))
    how_to_stop = (
        "" if kind.is_always_mailed else " Its administrators can turn these e-mails off for you."
    )
    lines = [
        kind.sentence,
        f"  organisation: {organisation}\n  at: {event.occurred_at:%Y-%m-%d %H:%M} UTC\n{facts}",
        "You receive this e-mail because of your role in this organisation in Penstock at "
        f"{settings.PENSTOCK_PUBLIC_URL}.{how_to_stop}",
    ]
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    return EmailMessage(
        subject=f"[Penstock] {subject(event)} ({organisation})",
        body="\n\n".join(lines) + "\n",
        to=[notice.membership.user.email],
        headers={"Message-ID": f"<{notice.pk}@{domain}>", "Auto-Submitted": "auto-generated"},
    )


def subject(event: Event) -> str:
    """Return the subject, without prefix and organisation."""
    if event.type == EventType.QUOTA_THRESHOLD_REACHED:
        limit = str(event.data["limit"]).replace("_", " ")
        return f"{event.data['percent']}% of the {limit} quota is used"
    return KINDS[EventType(event.type)].subject


def _facts(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the event's data as labels and texts, flattened, without empty values."""
    facts: list[tuple[str, str]] = []
    for name, value in data.items():
        if isinstance(value, Mapping):
            facts += [(f"{_words(name)} {inner}", text) for inner, text in _facts(value)]
        elif value is not None and value != "":
            facts.append(_fact(name, value))
    return facts


def _fact(name: str, value: object) -> tuple[str, str]:
    if name.endswith("_nanos") and isinstance(value, int):
        return _words(name.removesuffix("_nanos")), dollars(value)
    if isinstance(value, bool):
        return _words(name), "yes" if value else "no"
    if isinstance(value, int):
        return _words(name), f"{value:,}"
    if name in _CHOSEN:
        return _words(name), as_mailed(str(value))
    return _words(name), " ".join(str(value).split())


def _words(name: str) -> str:
    return name.replace("_", " ")
