"""Single sign-on at a provider that nobody here has written, set up by an owner on the page."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.chromium.flows import Newcomer, press
from tests.support.chromium.watched import Watched
from tests.support.sign_on import real_provider
from tests.support.sign_on.real_provider import a_real_provider
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack, pytest.mark.rare]

_DOMAIN = real_provider.EMAIL.partition("@")[2]
# What the stack's own manage.py runs, as an operator who knows whose the domain is.
_PROVE = """
from tenants.access.sign_on.domains import prove_domain
from tenants.isolation.scoping import operator_scope
from tenants.models import MailDomain

with operator_scope("test"):
    prove_domain(MailDomain.objects.get(tenant__name={name!r}))
"""


def set_up(page: Page, issuer: str) -> None:
    page.locator("[name=issuer]").fill(issuer)
    page.locator("[name=client_id]").fill(real_provider.CLIENT_ID)
    page.locator("[name=client_secret]").fill(real_provider.CLIENT_SECRET)
    page.locator("[name=default_role]").select_option("viewer")
    press(page, "Save provider")
    page.locator("[name=domain]").fill(_DOMAIN)
    press(page, "Add domain")
    expect(page.get_by_role("row", name=_DOMAIN)).to_contain_text("not proven")


def test_an_owner_sets_a_provider_up_and_a_colleague_signs_on_there(
    page: Page, browser: Watched, carol: Newcomer, live_stack: LiveStack, tmp_path: Path
) -> None:
    home = page.url
    page.locator(".rail-link[href$='/members']").click()
    page.get_by_role("link", name="Single sign-on, mail domains").click()
    back = page.locator("#addresses ~ dl code").nth(1).inner_text()
    with a_real_provider(tmp_path, redirect_address=back) as real:
        browser.allow(real.issuer)
        set_up(page, real.issuer)
        live_stack.manage("shell", "-c", _PROVE.format(name=carol.organisation))
        page.reload()
        expect(page.get_by_role("row", name=_DOMAIN)).not_to_contain_text("not proven")

        hers = browser.open()
        hers.goto("/account/login/")
        hers.get_by_role("link", name="Single sign-on").click()
        hers.locator("[name=email]").fill(real_provider.EMAIL)
        press(hers, "Continue")
        hers.wait_for_url(re.compile(r"/sso/[0-9a-f-]{36}/$"))
        expect(hers.get_by_role("heading", level=1)).to_have_text(carol.organisation)
        press(hers, "Continue")
        hers.wait_for_url(f"{real.issuer}/accounts/login/**")
        hers.locator("[name=login]").fill(real_provider.EMAIL)
        hers.locator("[name=password]").fill(real_provider.PASSWORD)
        hers.locator("form [type=submit]").first.click()
        hers.wait_for_url(home)
        expect(hers.locator(".switcher-name")).to_have_text(carol.organisation)
    page.goto(f"{home}members")
    expect(page.get_by_role("row", name=real_provider.EMAIL)).to_contain_text("viewer")
