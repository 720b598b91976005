"""Keys in a real browser: made, streamed with, revoked while the answer runs; and by keyboard."""

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from playwright.sync_api import Page, expect

from tests.support.chromium.flows import Newcomer, press, sign_in, tab_to
from tests.support.places import NO_TLS
from tests.support.polling import eventually_sync
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]

LONG = {"max_tokens": 1900, "ignore_eos": True, "stream": True}
# On a machine that does much else.
_HEARD_WITHIN_SECONDS = 30.0


def open_keys(page: Page) -> None:
    page.locator(".rail-link[href$='/keys']").click()
    page.wait_for_url("**/keys")


def secret_shown(page: Page) -> str:
    return page.locator("[data-secret] .secret-value").inner_text()


def make_key(page: Page, name: str) -> str:
    """By mouse; afterwards the key's page is open."""
    open_keys(page)
    page.get_by_role("link", name="New key").click()
    page.locator("[name=name]").fill(name)
    projects = page.locator("[name=project]")
    projects.select_option(index=projects.locator("option").count() - 1)
    press(page, "Create key")
    secret = secret_shown(page)
    page.get_by_role("link", name="I have stored it").click()
    page.wait_for_url(re.compile(r"/keys/[0-9a-f-]{36}$"))
    return secret


def wait_until_it_works(stack: LiveStack, secret: str) -> None:
    """Until the gateway has heard of the key."""

    def works() -> bool:
        with stack.openai_client(secret) as client:
            try:
                return bool(client.models.list().data)
            except openai.AuthenticationError:
                return False

    assert eventually_sync(works, _HEARD_WITHIN_SECONDS)


def chunks(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        data = line.removeprefix("data: ")
        if data != line and data != "[DONE]":
            yield json.loads(data)


def test_a_key_made_on_the_page_streams_until_it_is_revoked_there(
    page: Page, live_stack: LiveStack
) -> None:
    sign_in(page, live_stack.acme_owner)
    name = f"stream-{uuid.uuid4().hex[:8]}"
    secret = make_key(page, name)
    wait_until_it_works(live_stack, secret)

    page.get_by_role("link", name="Revoke key").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("[name=confirm_name]").fill(name)
    with httpx.stream(
        "POST",
        f"{live_stack.url}/v1/chat/completions",
        json=live_stack.chat_body("Tell me all that you know about rivers.") | LONG,
        headers={"Authorization": f"Bearer {secret}"},
        timeout=60,
        verify=NO_TLS,
    ) as answer:
        rest = chunks(answer)
        assert "error" not in next(rest)
        press(dialog, "Revoke key")
        *_, last = rest
    assert last["error"]["code"] == "api_key_revoked"
    expect(page.locator("#key")).to_contain_text("revoked")
    with live_stack.openai_client(secret) as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


@pytest.mark.rare
def test_making_and_revoking_a_key_takes_no_mouse(page: Page, live_stack: LiveStack) -> None:
    sign_in(page, live_stack.acme_owner)
    name, keys = f"by-hand-{uuid.uuid4().hex[:8]}", page.keyboard
    tab_to(page, ".rail-link[href$='/keys']")
    keys.press("Enter")
    page.wait_for_url("**/keys")
    tab_to(page, "a[href$='/keys/new']")
    keys.press("Enter")
    page.wait_for_url("**/keys/new")
    tab_to(page, "[name=project]")
    keys.press("ArrowDown")
    tab_to(page, "[name=name]")
    keys.type(name)
    tab_to(page, "form.panel [type=submit]")
    keys.press("Enter")
    secret = secret_shown(page)
    wait_until_it_works(live_stack, secret)
    tab_to(page, "[data-secret] [data-copy]")
    tab_to(page, "[data-secret] a[data-kind=primary]")
    keys.press("Enter")
    page.wait_for_url(re.compile(r"/keys/[0-9a-f-]{36}$"))

    tab_to(page, "[data-opens=revoke]")
    keys.press("Enter")
    tab_to(page, "#revoke-name")
    keys.type(name)
    tab_to(page, "dialog [type=submit]")
    keys.press("Enter")
    expect(page.locator("#key")).to_contain_text("revoked")


@pytest.mark.rare
def test_whoever_signs_up_sees_their_first_answer_noticed(
    page: Page, carol: Newcomer, live_stack: LiveStack
) -> None:
    overview = page.url
    expect(page.get_by_text("default is there.")).to_be_visible()
    live_stack.manage("set_billing_mode", carol.organisation, "postpaid")
    secret = make_key(page, "first")
    wait_until_it_works(live_stack, secret)
    page.goto(overview)
    expect(page.get_by_text("See the first answer")).to_be_visible()
    with live_stack.openai_client(secret) as client:
        client.chat.completions.create(**live_stack.chat_body("Hello."))
    # Within five seconds of the answer: one poll, and the collector's round before it.
    expect(page.get_by_text("The first answer has arrived.")).to_be_visible(timeout=5_000)
    page.get_by_role("link", name="Continue to the overview").click()
    expect(page.get_by_role("heading", name="Open now")).to_be_visible()
