"""Acme, Globex and whoever asks: made once a file, and each test's changes undone."""

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from pytest_django import DjangoDbBlocker

from tests.isolation.credentials import Credential, credentials
from tests.support.database import shared
from tests.support.two_tenants import TwoTenants, two_tenants

Cast = tuple[TwoTenants, dict[str, Credential]]


@pytest.fixture(autouse=True)
def _no_attempts_counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(scope="module")
def cast(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Cast]:
    def make() -> Cast:
        houses = two_tenants()
        return houses, credentials(houses)

    with shared(make, django_db_blocker) as cast:
        yield cast


@pytest.fixture
def houses(cast: Cast, db: None) -> TwoTenants:
    return cast[0]


@pytest.fixture
def asking(cast: Cast, db: None) -> dict[str, Credential]:
    """A credential for each column."""
    return cast[1]
