"""`penstock`, asked as in a shell; its calls reach the management API without a server."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest
from click.testing import CliRunner, Result
from command_line import calls
from command_line.application import penstock
from command_line.service import Service
from django.core.cache import cache
from django.test import Client

from tests.support.two_tenants import House, TwoTenants

URL: Final = "http://localhost"
Asked = Callable[..., Result]


class ThroughDjango(httpx.BaseTransport):
    """Answers as Django does, in the transaction of the test."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer: Any = Client().generic(
            request.method,
            request.url.raw_path.decode(),
            request.content,
            request.headers.get("content-type", ""),
            headers={"Authorization": request.headers["authorization"]},
        )
        return httpx.Response(
            answer.status_code, headers=dict(answer.items()), content=answer.content
        )


@pytest.fixture
def acme(houses: TwoTenants) -> House:
    return houses.acme


@pytest.fixture
def globex(houses: TwoTenants) -> House:
    return houses.globex


@pytest.fixture(autouse=True)
def _no_attempts_counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def ask(acme: House, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """`ask("keys", "list", scopes=["keys:write"])`: as a key of Acme with these scopes."""

    def asked(*words: str, scopes: tuple[str, ...] = ("admin",)) -> Result:
        service = Service(url=URL, key=acme.issue(scopes=list(scopes)))
        headers = {"Authorization": f"Bearer {service.key}"}
        service.__dict__["client"] = httpx.Client(
            base_url=URL, transport=ThroughDjango(), headers=headers
        )
        monkeypatch.setenv("PENSTOCK_URL", URL)
        monkeypatch.setattr(calls, "the_service", lambda: service)
        return CliRunner().invoke(penstock, words, prog_name="penstock")

    return asked


def told(result: Result) -> Any:
    """What a command printed as JSON."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
