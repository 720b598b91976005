"""A minute of what everybody does first, on the live stack."""

import re
import uuid

import pytest
from playwright.sync_api import Page, expect

from tests.support.chromium.flows import link_in, press, read_mail, sign_in, sign_out
from tests.support.stack_addresses import LiveStack, Person

pytestmark = [pytest.mark.engine, pytest.mark.stack]


def test_somebody_signs_up_makes_a_project_and_comes_back(
    page: Page, live_stack: LiveStack
) -> None:
    number = uuid.uuid4().hex[:8]
    carol = Person(email=f"carol-{number}@new.example", password="six lanterns beneath it")
    page.goto("/account/login/")
    page.get_by_role("link", name="Sign up").click()
    page.locator("[name=email]").fill(carol.email)
    press(page, "Send link")
    expect(page.get_by_role("heading", level=1)).to_have_text("Check your email")

    page.goto(link_in(read_mail(live_stack, carol.email, "Confirm your email address")))
    page.locator("[name=name]").fill("Carol")
    page.locator("[name=organisation]").fill(f"Carol's {number}")
    page.locator("[name=password]").fill(carol.password)
    press(page, "Make account")
    page.wait_for_url(re.compile(r"/t/[0-9a-f-]{36}/$"))
    expect(page.locator(".switcher-name")).to_have_text(f"Carol's {number}")

    page.get_by_role("link", name="Projects").first.click()
    page.get_by_role("link", name="New project").click()
    page.locator("[name=name]").fill("web")
    press(page, "Create project")
    page.wait_for_url("**/projects")
    expect(page.get_by_role("row", name="web")).to_be_visible()

    sign_out(page)
    sign_in(page, carol)
    expect(page.locator(".switcher-name")).to_have_text(f"Carol's {number}")
