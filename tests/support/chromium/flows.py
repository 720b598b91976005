"""What people do again and again: sign in, read an e-mail, use a passkey, go by keyboard."""

import email
import re
import time
import uuid
from dataclasses import dataclass
from email import policy
from pathlib import Path

import redis
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from playwright.sync_api import Locator, Page

from tests.support.polling import eventually_sync
from tests.support.stack_addresses import LiveStack, Person

_BETWEEN_MAILS = "-" * 79
_MAIL_SECONDS = 30.0
_MOST_TABS = 60


@dataclass(frozen=True, kw_only=True)
class Newcomer(Person):
    """The owner of an organisation that nobody else has a part in."""

    organisation: str


def sign_up(page: Page, stack: LiveStack) -> Newcomer:
    """Somebody new; the page of their organisation is open afterwards."""
    number = uuid.uuid4().hex[:8]
    carol = Newcomer(
        email=f"carol-{number}@new.example",
        password="six lanterns beneath it",
        organisation=f"Carol's {number}",
    )
    page.goto("/account/signup/")
    page.locator("[name=email]").fill(carol.email)
    press(page, "Send link")
    page.goto(link_in(read_mail(stack, carol.email, "Confirm your email address")))
    page.locator("[name=organisation]").fill(carol.organisation)
    page.locator("[name=password]").fill(carol.password)
    press(page, "Make account")
    page.wait_for_url(re.compile(r"/t/[0-9a-f-]{36}/$"))
    return carol


def sign_in(page: Page, who: Person) -> None:
    """By the form; where somebody has a second factor its page is open afterwards."""
    page.goto("/account/login/")
    page.locator("[name=login]").fill(who.email)
    page.locator("[name=password]").fill(who.password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(lambda url: "/account/login/" not in url)


def sign_out(page: Page) -> None:
    page.goto("/account/logout/")
    press(page, "Sign out")
    page.wait_for_url("**/account/login/")


def confirm(page: Page, who: Person) -> None:
    """Give the password again, on the page that asks for it before what changes one's sign-in."""
    page.locator("[name=password]").fill(who.password)
    press(page, "Continue")


def press(page: Page | Locator, button: str) -> None:
    page.get_by_role("button", name=button, exact=True).click()


def read_mail(stack: LiveStack, address: str, subject: str) -> str:
    """The text of the newest e-mail to somebody whose subject holds the words; waits for it."""
    found = eventually_sync(lambda: _newest(stack, address, subject), _MAIL_SECONDS)
    return found or ""


def link_in(text: str) -> str:
    found = re.search(r"https?://\S+/account/\S+", text)
    assert found is not None, text
    return found[0]


def totp_code(secret: str) -> str:
    """What an authenticator app shows now."""
    return str(format_hotp_value(hotp_value(secret, int(time.time() // 30))))


def add_authenticator(page: Page) -> None:
    """Give the page's browser a device that keeps passkeys, whose owner is always there."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    devtools.send(
        "WebAuthn.addVirtualAuthenticator",
        {
            "options": {
                "protocol": "ctap2",
                "transport": "internal",
                "hasResidentKey": True,
                "hasUserVerification": True,
                "isUserVerified": True,
                "automaticPresenceSimulation": True,
            }
        },
    )


def tab_to(page: Page, selector: str) -> None:
    """Go there by the tab key alone; where the focus is can be seen."""
    for _ in range(_MOST_TABS):
        if page.locator(f"{selector}:focus").count():
            outline = page.locator(":focus").evaluate(
                "element => getComputedStyle(element).outlineStyle"
                " + getComputedStyle(element).boxShadow"
            )
            assert outline != "nonenone", f"the focus on {selector} cannot be seen"
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{_MOST_TABS} tabs do not lead to {selector} on {page.url}")


def let_limits_pass(stack: LiveStack) -> None:
    """As if hours had passed: attempts and used codes are forgotten."""
    with redis.Redis.from_url(stack.environ["PENSTOCK_REDIS_URL"]) as client:
        for key in client.scan_iter("cache:*"):
            client.delete(key)


def _newest(stack: LiveStack, address: str, subject: str) -> str | None:
    files = sorted((stack.var_folder / "mail").glob("*"), key=lambda file: file.stat().st_mtime_ns)
    for file in reversed(files):
        for text in reversed(_mails(file)):
            message = email.message_from_string(text, policy=policy.default)
            if address in str(message["To"]) and subject in str(message["Subject"]):
                return str(message.get_content())
    return None


def _mails(file: Path) -> list[str]:
    return [text for text in file.read_text().split(_BETWEEN_MAILS) if text.strip()]
