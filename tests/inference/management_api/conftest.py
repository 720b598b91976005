"""Clients of the management API: people with sessions, and API keys. Nothing is in scope but what a
door opens itself."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from tenants.models import User
from tests.two_tenants import House, TwoTenants, two_tenants


class ApiClient:
    """Speaks JSON to one tenant's part of the API."""

    def __init__(self, tenant_id: object, *, user: User | None = None, key: str = "") -> None:
        self.http = Client(raise_request_exception=True)
        self.tenant = f"/api/v1/tenants/{tenant_id}"
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        if user is not None:
            self.http.force_login(user)

    def get(self, path: str = "", **query: Any) -> Any:
        return self.http.get(self._url(path), query, headers=self._headers)

    def post(self, path: str, body: object = None) -> Any:
        return self._send("POST", path, body)

    def patch(self, path: str, body: object) -> Any:
        return self._send("PATCH", path, body)

    def delete(self, path: str) -> Any:
        return self._send("DELETE", path, None)

    def _send(self, method: str, path: str, body: object) -> Any:
        return self.http.generic(
            method,
            self._url(path),
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body),
            content_type="application/json",
            headers=self._headers,
        )

    def _url(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.tenant}/{path}".rstrip("/")


@pytest.fixture(autouse=True)
def _no_attempts_counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def houses(db: None) -> TwoTenants:
    return two_tenants()


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
