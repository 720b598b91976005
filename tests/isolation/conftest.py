from collections.abc import Iterator

import pytest
from django.core.cache import cache

from tests.isolation.credentials import Credential, credentials
from tests.support.two_tenants import TwoTenants, two_tenants


@pytest.fixture(autouse=True)
def _no_attempts_counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def houses(db: None) -> TwoTenants:
    return two_tenants()


@pytest.fixture
def asking(houses: TwoTenants) -> dict[str, Credential]:
    """A credential for each column."""
    return credentials(houses)
