"""Acme, with a provider and the proven domain acme.example; its people have addresses there."""

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from pytest_django import Settings

from tests.support.accounts.browser import Browser
from tests.support.sign_on.arriving import a_provider_of
from tests.support.sign_on.lying_provider import LyingProvider
from tests.support.two_tenants import House, TwoTenants


@pytest.fixture(autouse=True)
def _loopback_is_reached_and_nothing_counted(settings: Settings) -> Iterator[None]:
    settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK = True
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def acme(houses: TwoTenants) -> House:
    return houses.acme


@pytest.fixture
def globex(houses: TwoTenants) -> House:
    return houses.globex


@pytest.fixture
def provider(acme: House) -> Iterator[LyingProvider]:
    with a_provider_of(acme.tenant, domain="acme.example") as provider:
        yield provider


@pytest.fixture
def browser() -> Browser:
    return Browser()
