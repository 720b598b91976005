"""The way to a provider and back in a real browser, which holds every page's policy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from tenants.isolation.scoping import operator_scope
from tenants.models import SignOnConfiguration
from tests.support.chromium.launching import FLAGS, chromium_path
from tests.support.sign_on import real_provider
from tests.support.sign_on.lying_provider import LyingProvider
from tests.support.sign_on.real_provider import a_real_provider
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def url(live_server: LiveServer, settings: Settings) -> str:
    settings.PENSTOCK_PUBLIC_URL = live_server.url
    return str(live_server.url)


@contextmanager
def a_page(url: str, *, has_script: bool = True) -> Iterator[Page]:
    """Whatever our pages say on the console fails the test: reports of the policy stand there."""
    path = chromium_path()
    if path is None:
        pytest.skip("This machine has no Chromium; .ci/run installs it: apt-get install chromium")
    told: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        page = browser.new_context(java_script_enabled=has_script).new_page()
        page.on(
            "console",
            lambda message: (
                told.append(message.text) if message.location["url"].startswith(url) else None
            ),
        )
        yield page
        browser.close()
    assert told == []


def go_to_provider(page: Page, url: str, acme: House, email: str) -> None:
    page.goto(f"{url}/account/login/")
    page.get_by_role("link", name="Single sign-on").click()
    page.locator("[name=email]").fill(email)
    page.locator("main [type=submit]").click()
    page.wait_for_url(f"**/sso/{acme.tenant.pk}/")
    page.locator("main [type=submit]").click()


@pytest.mark.parametrize("has_script", [True, pytest.param(False, marks=pytest.mark.rare)])
def test_the_policy_lets_a_browser_through(
    has_script: bool, acme: House, provider: LyingProvider, url: str
) -> None:
    with a_page(url, has_script=has_script) as page:
        go_to_provider(page, url, acme, "new@acme.example")
        page.wait_for_url(f"**/t/{acme.tenant.pk}/")
        assert page.locator("h1").inner_text() == "Acme"


@pytest.mark.rare
def test_carol_signs_on_at_a_real_provider(
    acme: House, provider: LyingProvider, url: str, tmp_path: Path
) -> None:
    back = f"{url}/sso/{acme.tenant.pk}/callback"
    with a_real_provider(tmp_path, redirect_address=back) as real:
        with operator_scope("test"):
            stored = SignOnConfiguration.objects.get(tenant=acme.tenant)
            stored.issuer, stored.client_id = real.issuer, real_provider.CLIENT_ID
            stored.client_secret = real_provider.CLIENT_SECRET
            stored.save()
        with a_page(url) as page:
            go_to_provider(page, url, acme, real_provider.EMAIL)
            page.wait_for_url(f"{real.issuer}/accounts/login/**")
            page.locator("[name=login]").fill(real_provider.EMAIL)
            page.locator("[name=password]").fill(real_provider.PASSWORD)
            page.locator("form [type=submit]").first.click()
            page.wait_for_url(f"**/t/{acme.tenant.pk}/")
            assert page.locator("h1").inner_text() == "Acme"


def test_a_lie_is_told_in_one_sentence(acme: House, provider: LyingProvider, url: str) -> None:
    provider.claims = {"email": "bob@globex.example"}
    path = chromium_path()
    if path is None:
        pytest.skip("This machine has no Chromium; .ci/run installs it: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        page = browser.new_page()
        go_to_provider(page, url, acme, "new@acme.example")
        page.wait_for_url("**/callback?**")
        assert page.locator("h1").inner_text() == "Not signed in"
        assert len(page.locator("main p").first.inner_text()) > 0
        browser.close()
