"""Why a request was refused, found in a real browser: its reason, sentence and what to do."""

import re
import uuid

import pytest
from playwright.sync_api import Page, expect

from tests.support.chromium.flows import sign_in
from tests.support.polling import eventually_sync
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]
_SHOWN_WITHIN_SECONDS = 30.0


def test_a_refusal_is_found_with_its_reason_and_narrowed_to(
    page: Page, live_stack: LiveStack
) -> None:
    refused = live_stack.ask(live_stack.acme_key, "Count.", model="no-such-model")
    assert refused.status_code == 404
    sign_in(page, live_stack.acme_owner)
    page.locator(".rail-link[href$='/refusals']").click()
    page.wait_for_url("**/refusals")
    request_id = str(uuid.UUID(refused.headers["x-request-id"]))

    def is_shown() -> bool:
        page.reload()
        return request_id in page.locator("#list").inner_html()

    assert eventually_sync(is_shown, _SHOWN_WITHIN_SECONDS)
    expect(page.locator("#list")).to_contain_text("names a model that does not exist")
    assert "no-such-model" not in page.content()

    page.locator("[name=code]").select_option("model_not_found")
    page.wait_for_url(re.compile(r"code=model_not_found"))
    reasons = page.locator("#list table").first
    expect(reasons.locator("tbody tr")).to_have_count(1)
    expect(reasons).to_contain_text("Unknown model")
    page.locator("#list").get_by_role("link", name="The key").first.click()
    page.wait_for_url(re.compile(r"/keys/[0-9a-f-]{36}$"))
