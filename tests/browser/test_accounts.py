"""People's accounts in a real browser: second factors, passkeys, sessions, and all by keyboard."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.chromium.flows import (
    Newcomer,
    add_authenticator,
    confirm,
    let_limits_pass,
    press,
    read_mail,
    sign_in,
    sign_out,
    tab_to,
    totp_code,
)
from tests.support.chromium.watched import Watched
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack, pytest.mark.rare]


def is_in(page: Page) -> bool:
    page.goto("/t/")
    return "/account/login/" not in page.url


def test_an_authenticator_app_is_set_up_and_asked_for(
    page: Page, carol: Newcomer, live_stack: LiveStack
) -> None:
    page.goto("/account/2fa/totp/activate/")
    confirm(page, carol)
    secret = page.locator("code").first.inner_text()
    page.locator("[name=code]").fill(totp_code(secret))
    press(page, "Turn on")
    page.wait_for_url("**/account/2fa/recovery-codes/")
    recovery_code = page.locator("pre code").inner_text().split()[0]

    sign_out(page)
    sign_in(page, carol)
    page.wait_for_url("**/account/2fa/authenticate/")
    page.locator("[name=code]").fill("000000")
    press(page, "Sign in")
    expect(page.locator(".field-error")).to_be_visible()
    let_limits_pass(live_stack)
    page.locator("[name=code]").fill(totp_code(secret))
    press(page, "Sign in")
    page.wait_for_url(re.compile(r"/t/"))

    sign_out(page)
    sign_in(page, carol)
    page.locator("[name=code]").fill(recovery_code)
    press(page, "Sign in")
    page.wait_for_url(re.compile(r"/t/"))


def test_a_passkey_signs_in_by_itself_and_after_the_password(page: Page, carol: Newcomer) -> None:
    add_authenticator(page)
    page.goto("/account/2fa/")
    page.get_by_role("link", name="Add a passkey").click()
    confirm(page, carol)
    page.locator("[name=name]").fill("laptop")
    press(page, "Add passkey")
    page.wait_for_url("**/account/2fa/recovery-codes/")
    page.goto("/account/2fa/")
    expect(page.get_by_role("listitem").filter(has_text="laptop")).to_contain_text("not used yet")

    sign_out(page)
    press(page, "Sign in with a passkey")
    page.wait_for_url(re.compile(r"/t/"))

    sign_out(page)
    sign_in(page, carol)
    page.wait_for_url("**/account/2fa/authenticate/")
    press(page, "Use a passkey")
    page.wait_for_url(re.compile(r"/t/"))

    page.goto("/account/2fa/")
    expect(page.get_by_role("listitem").filter(has_text="laptop")).to_contain_text("last used")
    page.get_by_role("link", name="Remove laptop").click()
    press(page, "Use a passkey")
    press(page, "Remove passkey")
    page.wait_for_url("**/account/2fa/")
    expect(page.get_by_role("listitem").filter(has_text="laptop")).to_have_count(0)


def test_a_browser_without_a_passkey_says_so_and_the_password_still_works(
    page: Page, browser: Watched, carol: Newcomer
) -> None:
    other = browser.open()
    add_authenticator(other)
    other.goto("/account/login/")
    press(other, "Sign in with a passkey")
    expect(other.locator("[data-problem]")).to_be_visible()
    sign_in(other, carol)
    assert is_in(other) and is_in(page)


def test_signing_out_everywhere_ends_the_other_browser(
    page: Page, browser: Watched, carol: Newcomer
) -> None:
    other = browser.open()
    sign_in(other, carol)
    assert is_in(other)
    browser.expect(401)  # the other's page asks for its live figures once more
    page.goto("/account/sessions/")
    sessions = page.get_by_role("main").get_by_role("listitem")
    expect(sessions).to_have_count(2)
    press(page, "Sign out everywhere else")
    expect(sessions).to_have_count(1)
    assert is_in(page) and not is_in(other)


def test_signing_in_and_making_a_project_takes_no_mouse(
    page: Page, browser: Watched, carol: Newcomer
) -> None:
    del page
    hers = browser.open()
    keys = hers.keyboard
    hers.goto("/account/login/")
    tab_to(hers, "[name=login]")
    keys.type(carol.email)
    tab_to(hers, "[name=password]")
    keys.type(carol.password)
    keys.press("Enter")
    hers.wait_for_url(re.compile(r"/t/[0-9a-f-]{36}/$"))
    tab_to(hers, ".rail-link[href$='/projects']")
    keys.press("Enter")
    hers.wait_for_url("**/projects")
    tab_to(hers, "a[href$='/projects/new']")
    keys.press("Enter")
    hers.wait_for_url("**/projects/new")
    tab_to(hers, "[name=name]")
    keys.type("by hand")
    tab_to(hers, "form.panel [type=submit]")
    keys.press("Enter")
    hers.wait_for_url("**/projects")
    expect(hers.get_by_role("row", name="by hand")).to_be_visible()


def test_an_operator_acts_as_a_member_and_ends_it(page: Page, live_stack: LiveStack) -> None:
    page.goto("/admin/")
    page.locator("[name=username]").fill(live_stack.operator.email)
    page.locator("[name=password]").fill(live_stack.operator.password)
    page.locator("#login-form [type=submit]").click()
    page.goto("/admin/tenants/tenant/?q=Acme")
    page.get_by_role("link", name="Acme", exact=True).click()
    page.get_by_role("link", name="Act as a member").first.click()
    page.locator("[name=reason]").fill("Ticket 4711: a project is missing")
    press(page, "Act as a member")
    page.wait_for_url(re.compile(r"/t/[0-9a-f-]{36}/$"))
    expect(page.get_by_role("button", name="End now")).to_be_visible()
    mail = read_mail(live_stack, live_stack.acme_owner.email, "An operator acts as a member")
    assert "Ticket 4711" in mail
    entered = page.url
    press(page, "End now")
    page.wait_for_url("**/admin/")
    answer = page.request.get(entered)
    assert answer.status == 404
