"""Inviting somebody who has no account, from the owner's page to theirs."""

import re
import uuid

import pytest
from playwright.sync_api import Page, expect

from tests.support.chromium.flows import Newcomer, link_in, press, read_mail
from tests.support.chromium.watched import Watched
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack, pytest.mark.rare]


def test_a_stranger_follows_the_link_and_belongs_to_the_organisation(
    page: Page, browser: Watched, carol: Newcomer, live_stack: LiveStack
) -> None:
    address = f"dave-{uuid.uuid4().hex[:8]}@new.example"
    page.locator(".rail-link[href$='/members']").click()
    page.get_by_role("link", name="Invite", exact=True).click()
    page.locator("[name=email]").fill(address)
    page.locator("[name=role][value=viewer]").check()
    press(page, "Send invitation")
    page.wait_for_url("**/members")
    expect(page.get_by_role("row", name=address)).to_contain_text("open")
    link = link_in(read_mail(live_stack, address, "You are invited"))

    his = browser.open()
    his.goto(link)
    expect(his.locator("main")).to_contain_text(carol.organisation)
    his.locator("[name=name]").fill("Dave")
    his.locator("[name=password]").fill("nine kettles on a shelf")
    press(his, "Make account and accept")
    his.wait_for_url(re.compile(r"/t/[0-9a-f-]{36}/$"))
    expect(his.locator(".switcher-name")).to_have_text(carol.organisation)
    page.reload()
    expect(page.get_by_role("row", name=address)).to_contain_text("viewer")
    expect(page.get_by_role("row", name=address)).not_to_contain_text("open")

    browser.expect(400)
    for anybody in (his, browser.open()):
        answer = anybody.goto(link)
        assert answer is not None and answer.status == 400
        expect(anybody.get_by_role("heading", level=1)).to_have_text("Invitation")
        expect(anybody.locator("main form [name=accept]")).to_have_count(0)
