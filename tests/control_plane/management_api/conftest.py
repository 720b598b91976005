"""Clients of the management API: people with sessions, and API keys. Nothing is in scope but what a
door opens itself."""

from collections.abc import Callable, Iterator

import pytest
from django.core.cache import cache

from tests.support.api_client import ApiClient
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
def globex(houses: TwoTenants) -> House:
    return houses.globex


@pytest.fixture
def as_role(acme: House) -> Callable[[str], ApiClient]:
    """Somebody of Acme in that role."""

    def client(role: str) -> ApiClient:
        return ApiClient(acme.tenant.id, user=acme.people[role])

    return client


@pytest.fixture
def with_scopes(acme: House) -> Callable[..., ApiClient]:
    """A key of Acme with these scopes."""

    def client(*scopes: str, **fields: object) -> ApiClient:
        return ApiClient(acme.tenant.id, key=acme.issue(scopes=list(scopes), **fields))

    return client
