"""Acme's people with a browser each."""

from collections.abc import Callable

import pytest
from django.test import Client

from tests.support.two_tenants import TwoTenants

SignIn = Callable[[str], Client]


@pytest.fixture
def signed_in(houses: TwoTenants) -> SignIn:
    """A browser in which Acme's person of that role is signed in."""

    def sign_in(role: str) -> Client:
        client = Client()
        client.force_login(houses.acme.people[role])
        return client

    return sign_in


@pytest.fixture
def acme_address(houses: TwoTenants) -> str:
    return f"/t/{houses.acme.tenant.id}/"
