"""What is removed while somebody refers to it: the removal is done, and nothing is left that refers
to what is gone."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.db.models.deletion import Collector

from tenants.access.people import delete_account
from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, Project, User
from tenants.permissions import Role
from tenants.webhooks.endpoints import add_endpoint, remove_endpoint
from tenants.webhooks.fan_out import fan_out_events
from tenants.webhooks.models import Delivery, Endpoint
from tests.support.database import somebody_waits
from tests.support.polling import eventually_sync
from tests.support.projects import make_project
from tests.support.webhooks.attempts import tell

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        return make_project("Acme", "premium")


def an_endpoint(acme: Project) -> Endpoint:
    tell(acme)
    return add_endpoint(acme.tenant, url="https://receiver.example/hook").endpoint


def an_account(acme: Project) -> User:
    return User.objects.create(email="alice@acme.example")


def join(user: User) -> None:
    tenant = Project.objects.get().tenant
    Membership.objects.create(tenant=tenant, user=user, role=Role.VIEWER)


@pytest.mark.parametrize(
    ("make", "refer", "remove", "referring"),
    [
        (an_endpoint, lambda _: fan_out_events(), remove_endpoint, Delivery),
        (an_account, join, delete_account, Membership),
    ],
    ids=["endpoint", "account"],
)
def test_what_somebody_refers_to_at_this_moment_is_removed(
    acme: Project,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Project], Any],
    refer: Callable[[Any], object],
    remove: Callable[[Any], object],
    referring: type[Any],
) -> None:
    with operator_scope("test"):
        record = make(acme)
    delete = Collector.delete
    references: list[Future[None]] = []

    def refer_first(collector: Collector) -> Any:
        """What goes with the record has been looked for by now."""
        if record in collector.data.get(type(record), ()):
            references.append(threads.submit(_apart, refer, record))
            eventually_sync(lambda: references[0].done() or somebody_waits(), 30)
        return delete(collector)

    monkeypatch.setattr(Collector, "delete", refer_first)
    with ThreadPoolExecutor() as threads, operator_scope("test"):
        remove(record)
    # Whoever referred to what was going has done nothing.
    assert isinstance(references[0].exception(), IntegrityError)
    with operator_scope("test"):
        assert not referring._default_manager.exists()


def _apart(refer: Callable[[Any], object], record: Any) -> None:
    try:
        with operator_scope("test"):
            refer(record)
    finally:
        connection.close()
