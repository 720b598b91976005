"""Calls of the management API at the same moment, each in a transaction of its own."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections

from tenants.isolation.scoping import tenant_scope
from tenants.models import ApiKey, Project
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db(transaction=True)

AsRole = Callable[[str], ApiClient]


class Calls:
    """Calls in threads of their own; `answers` has what came of them."""

    def __init__(self, *calls: Callable[[], Any]) -> None:
        self.answers: list[Any] = []
        self._threads = [threading.Thread(target=self._run, args=(call,)) for call in calls]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> list[int]:
        """Return the statuses, sorted."""
        for thread in self._threads:
            thread.join(30)
        return sorted(answer.status_code for answer in self.answers)

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.answers.append(call())
        finally:
            connections.close_all()


def wait_for_waiters(count: int) -> None:
    """Wait until so many transactions wait for a lock."""
    for _ in range(2000):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*), pg_sleep(0.01) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0] >= count:
                return
    raise AssertionError("nobody waits for a lock")


def test_a_repeat_while_the_first_call_runs_is_refused_and_later_finds_what_that_did(
    as_role: AsRole, acme: House
) -> None:
    path, once = f"keys/{acme.key.id}/rotate", {"idempotency-key": "todays-rotation"}
    first, second = as_role("owner"), as_role("owner")
    calls = Calls(lambda: first.send("POST", path, {}, headers=once))
    with tenant_scope(acme.tenant.id):
        ApiKey.objects.select_for_update().get(id=acme.key.id)
        calls.start()
        wait_for_waiters(1)
        early = second.send("POST", path, {}, headers=once)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "idempotency_key_in_use")
    assert early["Retry-After"] == "1"
    assert calls.join() == [200]
    late = second.send("POST", path, {}, headers=once)
    assert late.status_code == 200 and late["Idempotency-Replayed"] == "true"
    assert late.json() == {**calls.answers[0].json(), "key": None}


def test_of_repeats_at_the_same_moment_one_makes_a_record(as_role: AsRole) -> None:
    def make() -> Callable[[], Any]:
        client, once = as_role("owner"), {"idempotency-key": "one-project"}
        return lambda: client.send("POST", "projects", {"name": "once"}, headers=once)

    calls = Calls(*(make() for _ in range(6)))
    calls.start()
    assert set(calls.join()) <= {201, 409}
    listed = as_role("owner").get("projects", name="once").json()["data"]
    assert len(listed) == 1
    made = {answer.json()["id"] for answer in calls.answers if answer.status_code == 201}
    assert made == {listed[0]["id"]}


def test_of_changes_of_one_record_with_the_same_etag_one_is_made(
    as_role: AsRole, acme: House
) -> None:
    path = f"projects/{acme.project.id}"
    etag = as_role("owner").get(path)["ETag"]

    def change(number: int) -> Callable[[], Any]:
        client = as_role("owner")
        return lambda: client.send(
            "PATCH", path, {"name": f"name {number}"}, headers={"if-match": etag}
        )

    calls = Calls(*map(change, range(4)))
    with tenant_scope(acme.tenant.id):
        Project.objects.select_for_update(no_key=True).get(id=acme.project.id)
        calls.start()
        wait_for_waiters(4)
    assert calls.join() == [200, 412, 412, 412]
