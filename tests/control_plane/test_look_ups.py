"""Host names that tenants name are looked up at every door while no transaction is open, and one
tenant's that never answer hold up no other's webhooks."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client
from pytest_django import Settings

from tenants.access.sign_on import domains
from tenants.isolation.scoping import operator_scope
from tenants.models import MailDomain, SignOnConfiguration
from tenants.webhooks import addresses
from tenants.webhooks.deliveries import deliver_due
from tenants.webhooks.endpoints import send_test
from tenants.webhooks.look_ups import AT_ONCE
from tenants.webhooks.models import Delivery, Endpoint
from tests.support.api_client import ApiClient
from tests.support.polling import eventually_sync
from tests.support.servers import TestServers
from tests.support.two_tenants import House, TwoTenants
from tests.support.webhooks.receiver import Receiver, a_receiver

pytestmark = pytest.mark.django_db(transaction=True)
NEVER = "never.example.com"


@dataclass
class Resolver:
    """Answers for what it was told, and for `NEVER` once the test is over."""

    servers: TestServers
    known: dict[str, str] = field(default_factory=dict)
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    over: threading.Event = field(default_factory=threading.Event)
    transactions: list[int] = field(default_factory=list)

    def getaddrinfo(self, host: str, port: int, *_: Any, **__: Any) -> Any:
        if host == NEVER:
            self.look()
            self.over.wait(timeout=30)
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        address = self.known.get(host, host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    def look(self) -> None:
        self.transactions.append(self.open_transactions())
        self.asked.release()

    def open_transactions(self) -> int:
        """Count who holds a transaction open while they wait."""
        with psycopg.connect(self.servers.superuser_url, autocommit=True) as look:
            idle = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
            return int(look.execute(idle).fetchone()[0])  # type: ignore[index]


@pytest.fixture
def resolver(test_servers: TestServers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    resolver = Resolver(test_servers)
    monkeypatch.setattr(addresses, "_RESOLVE_SECONDS", 0.5)
    monkeypatch.setattr(socket, "getaddrinfo", resolver.getaddrinfo)
    yield resolver
    resolver.over.set()
    eventually_sync(lambda: not addresses._LOOK_UPS._running)


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK = True
    with a_receiver() as receiver:
        yield receiver


def owner_of(house: House) -> ApiClient:
    return ApiClient(house.tenant.id, user=house.people["owner"])


def page_of(house: House) -> tuple[Client, str]:
    client = Client()
    client.force_login(house.people["owner"])
    return client, f"/t/{house.tenant.id}/"


def made_by_api(house: House) -> Any:
    return owner_of(house).post("webhooks", {"url": f"https://{NEVER}/"})


def changed_by_api(house: House) -> Any:
    return owner_of(house).patch(f"webhooks/{house.endpoint.id}", {"url": f"https://{NEVER}/"})


def issuer_by_api(house: House) -> Any:
    body = {"issuer": f"https://{NEVER}", "client_id": "a", "client_secret": "b"}
    return owner_of(house).patch("sign-on", body)


def made_on_page(house: House) -> Any:
    client, address = page_of(house)
    return client.post(f"{address}webhooks/new", {"url": f"https://{NEVER}/", "events": "all"})


def changed_on_page(house: House) -> Any:
    client, address = page_of(house)
    form = {"url": f"https://{NEVER}/", "events": "all"}
    return client.post(f"{address}webhooks/{house.endpoint.id}/change", form)


def issuer_on_page(house: House) -> Any:
    client, address = page_of(house)
    form = {"issuer": f"https://{NEVER}", "client_id": "a", "client_secret": "b"}
    return client.post(f"{address}sign-on", form | {"default_role": "viewer"})


@pytest.mark.parametrize(
    ("door", "status"),
    [
        (made_by_api, 400),
        (changed_by_api, 400),
        (issuer_by_api, 400),
        (made_on_page, 422),
        (changed_on_page, 422),
        (issuer_on_page, 422),
    ],
)
def test_no_door_holds_a_transaction_open_while_it_asks_the_dns(
    houses: TwoTenants, resolver: Resolver, door: Callable[[House], Any], status: int
) -> None:
    answer = door(houses.acme)
    assert answer.status_code == status
    assert "did not answer in time" in answer.content.decode()
    assert resolver.transactions == [0]
    with operator_scope("test"):
        assert not Endpoint.objects.filter(url__contains=NEVER).exists()
        assert not SignOnConfiguration.objects.exists()


@pytest.mark.parametrize("is_page", [True, False], ids=["page", "api"])
def test_nor_does_one_that_looks_for_a_record(
    houses: TwoTenants, resolver: Resolver, monkeypatch: pytest.MonkeyPatch, is_page: bool
) -> None:
    def texts(_name: str) -> list[str]:
        resolver.look()
        return [houses.acme.mail_domain.record_value]

    monkeypatch.setattr(domains, "txt_records", texts)
    if is_page:
        client, address = page_of(houses.acme)
        client.post(f"{address}sign-on/domains/{houses.acme.mail_domain.id}/verify")
    else:
        path = f"mail-domains/{houses.acme.mail_domain.id}/verify"
        assert owner_of(houses.acme).post(path).json()["proven_by"] == "dns"
    assert resolver.transactions == [0]
    with operator_scope("test"):
        assert MailDomain.objects.get(pk=houses.acme.mail_domain.pk).is_proven


def test_who_may_not_change_it_has_nothing_looked_up(
    houses: TwoTenants, resolver: Resolver
) -> None:
    stranger, viewer = Client(), Client()
    stranger.force_login(houses.globex.people["owner"])
    viewer.force_login(houses.acme.people["viewer"])
    form = {"url": f"https://{NEVER}/", "events": "all"}
    for client, status in ((stranger, 404), (viewer, 403)):
        assert client.post(f"/t/{houses.acme.tenant.id}/webhooks/new", form).status_code == status
    for person, status in (
        (houses.globex.people["owner"], 404),
        (houses.acme.people["viewer"], 403),
    ):
        api = ApiClient(houses.acme.tenant.id, user=person)
        assert api.post("webhooks", {"url": f"https://{NEVER}/"}).status_code == status
    assert resolver.transactions == []


def test_one_tenants_silent_names_hold_up_no_others_webhooks(
    houses: TwoTenants, resolver: Resolver, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "_RESOLVE_SECONDS", 20)
    resolver.known["hooks.globex.example"] = "127.0.0.1"
    url = f"http://hooks.globex.example:{receiver.port}/"
    with operator_scope("test"):
        Delivery.objects.all().delete()
        Endpoint.objects.filter(pk=houses.acme.endpoint.pk).update(url=f"https://{NEVER}/")
        for _ in range(3):
            send_test(houses.acme.endpoint)
    with ThreadPoolExecutor(21) as pool:

        def flood() -> int:
            try:
                return int(made_by_api(houses.acme).status_code)
            finally:
                connection.close()

        def deliver() -> None:
            try:
                deliver_due(seconds=2)
            finally:
                connection.close()

        waiting = [pool.submit(flood) for _ in range(20)]
        for _ in range(AT_ONCE):
            assert resolver.asked.acquire(timeout=10)
        # As many as may wait, wait; of the others each was told at once.
        eventually_sync(lambda: sum(each.done() for each in waiting) >= 12)
        made = ApiClient(houses.globex.tenant.id, user=houses.globex.people["owner"]).post(
            "webhooks", {"url": url}
        )
        assert made.status_code == 201
        with operator_scope("test"):
            send_test(Endpoint.objects.get(pk=made.json()["id"]))
        sending = pool.submit(deliver)
        eventually_sync(lambda: bool(receiver.requests))
        eventually_sync(lambda: resolver.open_transactions() == 0)
        resolver.over.set()
        sending.result(timeout=30)
        assert {each.result(timeout=30) for each in waiting} == {400}
