"""E-mails of events: to whom, what they say, once, and again where the mail server failed."""

import smtplib
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.core.mail.backends.locmem import EmailBackend
from pytest_django import Settings

from tenants.models import Membership, Project, Quota, Tenant, User
from tenants.webhooks import emails
from tenants.webhooks.emails import (
    EMAILS_OF_A_TENANT_AN_HOUR,
    EMAILS_TO_AN_ADDRESS_AN_HOUR,
    MAX_TRIES,
    send_due,
)
from tenants.webhooks.event_types import KINDS, EventType
from tenants.webhooks.events import publish
from tenants.webhooks.fan_out import fan_out_events
from tenants.webhooks.models import EmailNotice, Event

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators", "_mail_settings")]
NOW = datetime.now(UTC)
LOW = {"balance_nanos": 1_500_000_000, "threshold_nanos": 5_000_000_000, "note": None}


@pytest.fixture
def _mail_settings(settings: Settings) -> None:
    settings.DEFAULT_FROM_EMAIL = "Penstock <alerts@penstock.example>"


def tell(acme: Project, kind: EventType = EventType.BALANCE_LOW, key: str = "low") -> None:
    publish(acme.tenant_id, kind, LOW, key=key, occurred_at=datetime(2026, 5, 6, 7, 8, tzinfo=UTC))
    fan_out_events(NOW)


def recipients() -> set[str]:
    return {address for message in mail.outbox for address in message.to}


def test_those_who_answer_for_the_money_are_told_of_a_low_balance_once(
    acme: Project, people: dict[str, Membership]
) -> None:
    tell(acme)
    assert send_due() == 3
    assert recipients() == {f"{role}@acme.example" for role in ("owner", "admin", "billing")}
    tell(acme)
    assert send_due() == 0
    message = mail.outbox[0]
    assert len(message.to) == 1
    assert message.subject == "[Penstock] Your balance is low (Acme)"
    assert message.from_email == "Penstock <alerts@penstock.example>"
    assert message.body == (
        "Your prepaid balance is low. Requests are refused once it is used up.\n\n"
        "  organisation: Acme\n  at: 2026-05-06 07:08 UTC\n  balance: $1.50\n  threshold: $5.00\n\n"
        "You receive this e-mail because of your role in this organisation in Penstock at "
        "http://testserver. Its administrators can turn these e-mails off for you.\n"
    )


def test_a_quota_is_told_to_admins_with_what_is_left_to_know(
    acme: Project, people: dict[str, Membership]
) -> None:
    data = {
        "limit": "tokens_per_day",
        "percent": 80,
        "project": {"id": "7", "name": "web\r\nBcc: all@example.org"},
        "api_key": None,
        "used_tokens": 1_234_567,
    }
    publish(acme.tenant_id, EventType.QUOTA_THRESHOLD_REACHED, data, key="80")
    fan_out_events()
    send_due()
    assert recipients() == {"owner@acme.example", "admin@acme.example"}
    assert mail.outbox[0].subject == "[Penstock] 80% of the tokens per day quota is used (Acme)"
    assert "  project name: web Bcc: all@ example. org\n" in mail.outbox[0].body
    assert "  used tokens: 1,234,567" in mail.outbox[0].body
    assert "api key" not in mail.outbox[0].body


def test_who_wants_none_or_cannot_sign_in_or_is_elsewhere_gets_none(
    acme: Project, globex: Project, people: dict[str, Membership]
) -> None:
    Membership.objects.filter(role="admin").update(gets_alerts=False)
    User.objects.filter(email="billing@acme.example").update(is_active=False)
    Membership.objects.create(
        tenant=globex.tenant, user=User.objects.create(email="bob@globex.example"), role="owner"
    )
    tell(acme)
    send_due()
    assert recipients() == {"owner@acme.example"}


def test_a_tenants_name_breaks_no_header(acme: Project, people: dict[str, Membership]) -> None:
    acme.tenant.name = "Acme\nBcc: all@example.org"
    acme.tenant.save()
    tell(acme)
    send_due()
    assert mail.outbox[0].subject.endswith("(Acme Bcc: all@ example. org)")
    assert mail.outbox[0].recipients() == mail.outbox[0].to


def test_a_name_cannot_be_a_link_or_a_page_in_an_email(
    acme: Project, people: dict[str, Membership]
) -> None:
    acme.tenant.name = "Pay at https://evil.example/now \u202eecivni" + "x" * 100
    acme.tenant.save()
    tell(acme)
    send_due()
    body = mail.outbox[0].body
    assert "evil.example" not in body and "https://evil" not in body and "\u202e" not in body
    assert len(mail.outbox[0].subject) < 120


def test_a_tenants_emails_of_an_hour_are_bounded_and_hold_up_no_other(
    acme: Project, globex: Project, people: dict[str, Membership]
) -> None:
    Membership.objects.create(
        tenant=globex.tenant, user=User.objects.create(email="bob@globex.example"), role="owner"
    )
    for number in range(100):
        tell(acme, key=str(number))
    tell(globex)
    for _ in range(30):
        send_due(NOW)
    sent = Counter(address for message in mail.outbox for address in message.to)
    assert sent["bob@globex.example"] == 1
    assert max(sent.values()) <= EMAILS_TO_AN_ADDRESS_AN_HOUR
    assert sum(sent.values()) <= EMAILS_OF_A_TENANT_AN_HOUR + 1
    in_an_hour = NOW + timedelta(hours=1, seconds=1)
    assert send_due(in_an_hour) > 0
    assert send_due(NOW + timedelta(hours=30)) == 0
    assert not EmailNotice.objects.filter(state="pending").exists()


def test_an_address_in_many_tenants_is_not_flooded_by_all_of_them(acme: Project) -> None:
    alice = User.objects.create(email="alice@acme.example")
    for number in range(30):
        tenant = Tenant.objects.create(name=f"House {number}", tier=acme.tenant.tier)
        Membership.objects.create(tenant=tenant, user=alice, role="owner")
        publish(tenant.pk, EventType.BALANCE_LOW, LOW, key="low")
    fan_out_events(NOW)
    for _ in range(10):
        send_due(NOW + timedelta(minutes=1))
    assert len(mail.outbox) == EMAILS_TO_AN_ADDRESS_AN_HOUR


class _Refusing(EmailBackend):
    def send_messages(self, messages: object) -> int:
        raise smtplib.SMTPRecipientsRefused({"owner@acme.example": (550, b"no such user")})


def test_a_mail_server_that_fails_is_tried_again_for_a_day_and_it_is_noted(
    acme: Project, people: dict[str, Membership], settings: Settings
) -> None:
    works = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = f"{__name__}._Refusing"
    Membership.objects.exclude(role="owner").update(gets_alerts=False)
    tell(acme)
    now, began = NOW + timedelta(minutes=1), NOW
    for number in range(MAX_TRIES):
        assert send_due(now) == 0
        notice = EmailNotice.objects.get()
        assert (notice.tries, notice.problem) == (number + 1, "SMTPRecipientsRefused")
        now = notice.next_try_at or now
    assert notice.state == "failed"
    assert timedelta(hours=20) < now - began < timedelta(hours=30)
    assert send_due(now + timedelta(days=9)) == 0
    settings.EMAIL_BACKEND = works
    tell(acme, key="again")
    assert send_due(now) == 1


class _RefusingOne(EmailBackend):
    def send_messages(self, messages: list[EmailMessage]) -> int:  # type: ignore[override]
        if messages[0].to == ["owner@acme.example"]:
            raise UnicodeError("label too long")
        return int(super().send_messages(messages))


def test_an_address_that_cannot_be_written_keeps_no_other_from_its_mail(
    acme: Project, people: dict[str, Membership], settings: Settings
) -> None:
    settings.EMAIL_BACKEND = f"{__name__}._RefusingOne"
    tell(acme)
    assert send_due(NOW + timedelta(minutes=1)) == 2
    notice = EmailNotice.objects.get(membership=people["owner"])
    assert (notice.state, notice.problem) == ("pending", "UnicodeError")


def test_a_notice_that_was_lost_with_its_worker_is_sent_again_as_the_same_message(
    acme: Project, people: dict[str, Membership]
) -> None:
    Membership.objects.exclude(role="owner").update(gets_alerts=False)
    tell(acme)
    (lost,) = emails.claim_due(NOW + timedelta(minutes=1))
    emails.as_message(lost).send()
    assert send_due(NOW + timedelta(minutes=2)) == 0
    assert send_due(NOW + timedelta(minutes=1) + emails.LEASE) == 1
    first, second = mail.outbox
    assert first.extra_headers["Message-ID"] == second.extra_headers["Message-ID"]
    assert first.extra_headers["Message-ID"].endswith("@penstock.example>")


def test_a_member_who_leaves_takes_their_notices_along(
    acme: Project, people: dict[str, Membership]
) -> None:
    tell(acme)
    people["admin"].delete()
    send_due()
    assert recipients() == {"owner@acme.example", "billing@acme.example"}


def test_every_event_has_words_for_an_e_mail(acme: Project, people: dict[str, Membership]) -> None:
    quota = {"limit": "tokens_per_day", "percent": 50}
    for kind in EventType:
        publish(acme.tenant_id, kind, quota, key=kind)
    fan_out_events()
    send_due()
    told = {message.subject for message in mail.outbox}
    assert len(told) == sum(bool(kind.mailed_to) for kind in KINDS.values())
    assert all(subject.endswith(" (Acme)") for subject in told)
    assert Event.objects.filter(fanned_out_at=None).count() == 0
    assert not Quota.objects.exists()
