"""The pages of one's account stand in the shell, with a way back to every organisation."""

import re

import pytest

from tests.support.accounts.browser import Browser
from tests.support.two_tenants import PASSWORD, House

PAGES = {
    "/account/": "Your account",
    "/account/email/": "Email address",
    "/account/password/change/": "Password",
    "/account/2fa/": "Two-step sign-in",
    "/account/2fa/totp/activate/": "Two-step sign-in",
    "/account/sessions/": "Sessions",
}


@pytest.mark.parametrize(("address", "word"), PAGES.items())
def test_a_page_of_the_account_shows_where_it_stands(
    alice: Browser, address: str, word: str
) -> None:
    alice.submit("/account/reauthenticate/", password=PASSWORD)
    page = alice.get(address).content.decode()
    rail = page.partition('aria-label="Pages of your account"')[2].partition("</nav>")[0]
    current = re.findall(r'aria-current="page">.*?<span>(.*?)</span>', rail)
    assert current == [word]
    for target in ("/account/", "/account/sessions/"):
        assert f'href="{target}"' in rail


def test_the_account_leads_back_to_each_organisation(alice: Browser, acme: House) -> None:
    page = alice.get("/account/").content.decode()
    assert 'hx-get="/t/"' in page
    assert 'href="/t/"' in page
    choices = alice.http.get("/t/", HTTP_HX_REQUEST="true").content.decode()
    assert f'href="/t/{acme.tenant.id}/"' in choices


def test_a_tenants_page_leads_to_the_account(alice: Browser, acme: House) -> None:
    page = alice.get(f"/t/{acme.tenant.id}/").content.decode()
    assert re.search(r'<a class="popover-item" href="/account/">.*Your account', page)


def test_the_account_says_whether_a_password_alone_signs_in(alice: Browser) -> None:
    assert "your password alone signs you in" in alice.get("/account/").content.decode()
