"""Acme, Globex and whoever asks: made once a file, and each test's changes undone."""

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from pytest_django import DjangoDbBlocker

from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tests.isolation.credentials import Credential, credentials, signed_in
from tests.support.database import shared
from tests.support.two_tenants import House, TwoTenants, two_tenants

Cast = tuple[TwoTenants, dict[str, Credential], dict[str, Credential]]


@pytest.fixture(autouse=True)
def _no_attempts_counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(scope="module")
def cast(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Cast]:
    def make() -> Cast:
        houses = two_tenants()
        people = {role: signed_in(user) for role, user in houses.acme.people.items()}
        return houses, credentials(houses), people

    with shared(make, django_db_blocker) as cast:
        yield cast


@pytest.fixture
def houses(cast: Cast, db: None) -> TwoTenants:
    return cast[0]


@pytest.fixture
def asking(cast: Cast, db: None) -> dict[str, Credential]:
    """A credential for each column."""
    return cast[1]


@pytest.fixture
def people(cast: Cast, db: None) -> dict[str, Credential]:
    """A session of Acme for each role."""
    return cast[2]


@pytest.fixture
def acme(houses: TwoTenants) -> House:
    """With a key that a key may manage: one that may no more than that one."""
    with operator_scope("test"):
        ApiKey.objects.filter(id=houses.acme.key.id).update(scopes=["keys:write"])
    return houses.acme
