from collections.abc import Iterator

import pytest
from django.core.cache import cache

from tests.support.accounts.browser import Browser
from tests.support.two_tenants import House, TwoTenants


@pytest.fixture(autouse=True)
def _no_attempts_counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def acme(houses: TwoTenants) -> House:
    return houses.acme


@pytest.fixture
def globex_house(houses: TwoTenants) -> House:
    return houses.globex


@pytest.fixture
def alice(acme: House) -> Browser:
    """The owner of Acme, signed in by the page."""
    browser = Browser()
    assert browser.sign_in("owner@acme.example").status_code == 302
    return browser
