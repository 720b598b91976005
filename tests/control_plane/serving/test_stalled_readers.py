"""Whoever reads nothing of an answer holds no connection to the database, of which a process has
ten: forty of them, and somebody signs in beside them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from control_plane.serving.one_thread import OneThreadHandler
from django.conf import settings
from django.test import Client

from tenants import exports
from tests.support.database import connections_in_use
from tests.support.two_tenants import TwoTenants

pytestmark = pytest.mark.django_db(transaction=True)
READERS, PASSWORD = 40, "a long and unguessable one"
FILES = ("requests/export.csv", "audit/export.csv")


class Stalled:
    """A client that takes so many parts of its answer and then no more."""

    def __init__(self, path: str, cookie: str, *, parts: int) -> None:
        self.stands_still = asyncio.Event()
        self.leaves = asyncio.Event()
        self._asked = asyncio.Event()
        self._parts = parts
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "headers": [
                (b"host", b"localhost"),
                (b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie}".encode()),
            ],
            "query_string": b"",
        }

    async def ask(self) -> None:
        await OneThreadHandler()(self._scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._asked.is_set():
            await self.leaves.wait()
            return {"type": "http.disconnect"}
        self._asked.set()
        return {"type": "http.request", "body": b""}

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
        elif self._parts:
            self._parts -= 1
        else:
            self.stands_still.set()
            await asyncio.Event().wait()


@pytest.mark.parametrize(("names", "parts"), [(FILES, 0), (FILES, 1), (("usage",), 0)])
def test_forty_stalled_readers_hold_no_connection_and_somebody_signs_in(
    houses: TwoTenants, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], parts: int
) -> None:
    monkeypatch.setattr(exports, "AT_ONCE", READERS)
    owner = houses.acme.people["owner"]
    owner.set_password(PASSWORD)
    owner.save()
    client = Client()
    client.force_login(owner)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
    before = connections_in_use()

    async def sign_in_beside_them() -> None:
        paths = [f"/t/{houses.acme.tenant.id}/{name}" for name in names]
        readers = [
            Stalled(paths[number % len(paths)], cookie, parts=parts) for number in range(READERS)
        ]
        asking = [asyncio.create_task(reader.ask()) for reader in readers]
        stalled = asyncio.gather(*(reader.stands_still.wait() for reader in readers))
        await asyncio.wait_for(stalled, 120)
        assert connections_in_use() <= before
        form = {"login": owner.email, "password": PASSWORD}
        answer = await sync_to_async(Client().post)("/account/login/", form)
        assert answer.status_code == 302
        for reader in readers:
            reader.leaves.set()
        await asyncio.gather(*asking)

    asyncio.run(sign_in_beside_them())
