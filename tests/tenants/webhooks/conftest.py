"""Acme has an endpoint on loopback, where only tests and development may be sent to."""

import ipaddress
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from tenants.models import Membership, Project, User
from tenants.permissions import Role
from tenants.webhooks.endpoints import NewSecret, add_endpoint
from tests.support.webhooks.receiver import Receiver, a_receiver

Resolver = Callable[..., None]


@pytest.fixture
def loopback_allowed(settings: Settings) -> None:
    settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK = True


@pytest.fixture
def receiver(loopback_allowed: None) -> Iterator[Receiver]:
    with a_receiver() as receiver:
        yield receiver


@pytest.fixture
def endpoint(acme: Project, receiver: Receiver) -> NewSecret:
    return add_endpoint(acme.tenant, url=receiver.url, description="billing")


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """`resolve(host, [addresses], [addresses of the next look-up], …)`: what the DNS says; the last
    answer stays. Returns a list that has the host in it once for each look-up."""
    answers: dict[str, list[list[str]]] = {}
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in answers:
            try:
                ipaddress.ip_address(host)
            except ValueError:
                raise socket.gaierror(socket.EAI_NONAME, "not known") from None
            return real(host, port, *args, **kwargs)
        asked.append(host)
        left = answers[host]
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(_family(address), socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    def tell(host: str, *answers_in_turn: list[str]) -> list[str]:
        answers[host] = list(answers_in_turn)
        return asked

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return tell


@pytest.fixture
def people(acme: Project) -> dict[str, Membership]:
    """Acme's, one of each role."""
    return {
        role.value: Membership.objects.create(
            tenant=acme.tenant,
            user=User.objects.create(email=f"{role}@acme.example"),
            role=role,
        )
        for role in Role
    }


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
