"""The way to the provider and back in a real browser, which holds every page's policy."""

import shutil

import pytest
from playwright.sync_api import sync_playwright
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from tests.support.sign_on.lying_provider import LyingProvider
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("has_script", [True, False])
def test_the_policy_lets_a_browser_through(
    has_script: bool,
    acme: House,
    provider: LyingProvider,
    live_server: LiveServer,
    settings: Settings,
) -> None:
    settings.PENSTOCK_PUBLIC_URL = live_server.url
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_context(java_script_enabled=has_script).new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.goto(f"{live_server.url}/account/sso/")
        page.locator("[name=email]").fill("new@acme.example")
        page.locator("main [type=submit]").click()
        page.wait_for_url(f"**/sso/{acme.tenant.pk}/")
        page.locator("main [type=submit]").click()
        page.wait_for_url(f"**/t/{acme.tenant.pk}/")
        assert page.locator("h1").inner_text() == "Acme"
        browser.close()
    assert problems == []
