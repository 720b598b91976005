"""Changes are noted without a lock and join the audit log as their transactions commit."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from threading import Barrier
from time import monotonic
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections, transaction

from tenants.audit.chain import broken
from tenants.audit.log import broken_chains
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    AuditEvent,
    PolicyChange,
    PolicyImpact,
    PolicyPart,
    PolicyVersion,
    Project,
    Quota,
    Tenant,
    User,
)
from tests.support.commands import printed
from tests.support.database import somebody_waits

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]
Elsewhere = Callable[[Callable[[], object]], object]
TIMEOUT_SECONDS = 60


def add_quota(project: Project, limit: str) -> None:
    Quota.objects.bulk_create(
        [Quota(tenant_id=project.tenant_id, project=project, limit=limit, value=1)]
    )


def quotas_in_order(project: Project) -> list[str]:
    """The limits of the tenant's quotas, as its chain has their creation."""
    events = AuditEvent.objects.filter(tenant=project.tenant_id, record_kind="tenants.Quota")
    return [event.changed_fields["limit"][1] for event in events.order_by("sequence")]


@contextmanager
def as_owner() -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(settings.ENV.owner_database_url) as owner:
        yield owner


def left_pending() -> int:
    with as_owner() as owner:
        row = owner.execute("SELECT count(*) FROM tenants_auditpending").fetchone()
    assert row is not None
    return int(row[0])


def in_threads(*works: Callable[[], object]) -> None:
    def closing(work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(closing, work) for work in works]:
            done.result(timeout=TIMEOUT_SECONDS)


def test_a_long_transaction_keeps_no_other_change_waiting(
    acme: Project, globex: Project, elsewhere: Elsewhere
) -> None:
    with transaction.atomic():
        add_quota(acme, "ours")
        elsewhere(lambda: add_quota(globex, "another tenant's"))
        elsewhere(lambda: add_quota(acme, "the same tenant's"))
        assert quotas_in_order(globex) == ["another tenant's"]
        add_quota(acme, "ours too")
    assert quotas_in_order(acme) == ["the same tenant's", "ours", "ours too"]
    assert list(broken_chains()) == []


def test_an_export_since_a_moment_is_whole_though_an_older_change_committed_later(
    acme: Project, elsewhere: Elsewhere
) -> None:
    with transaction.atomic():
        add_quota(acme, "older")
        elsewhere(lambda: add_quota(acme, "newer"))
    older, newer = AuditEvent.objects.filter(record_kind="tenants.Quota").order_by("at")
    assert older.sequence == newer.sequence + 1
    since = (newer.at - timedelta(microseconds=1)).isoformat()
    told = printed("export_audit", "--tenant", "Acme", "--since", since)
    lines = [json.loads(line) for line in told.splitlines()]
    assert [line["sequence"] for line in lines[:2]] == [newer.sequence, older.sequence]
    assert list(broken(lines, from_start=False)) == []


def test_what_is_rolled_back_leaves_no_trace_in_the_log(acme: Project) -> None:
    before = AuditEvent.objects.count()
    with pytest.raises(RuntimeError), transaction.atomic():
        add_quota(acme, "never")
        raise RuntimeError("on purpose")
    assert AuditEvent.objects.count() == before
    with transaction.atomic():
        add_quota(acme, "first")
        with pytest.raises(RuntimeError), transaction.atomic():
            add_quota(acme, "never either")
            raise RuntimeError("on purpose")
        add_quota(acme, "second")
    assert quotas_in_order(acme) == ["first", "second"]
    assert left_pending() == 0
    assert list(broken_chains()) == []


def test_two_that_change_policy_and_audited_rows_in_opposite_orders_both_commit(
    acme: Project, globex: Project
) -> None:
    rounds = 25
    together = Barrier(2)

    def policy() -> None:
        PolicyChange.note([PolicyImpact(PolicyPart.TENANTS, str(acme.tenant_id))])

    def one(project: Project, name: str, policy_first: bool) -> None:
        for number in range(rounds):
            with operator_scope("test"):
                if policy_first:
                    policy()
                with connection.cursor() as cursor:  # past the manager, which notes policy itself
                    cursor.execute(
                        "UPDATE tenants_project SET name = %s WHERE id = %s",
                        [f"{name} {number}", project.id],
                    )
                if not policy_first:
                    policy()
                together.wait(TIMEOUT_SECONDS)

    version = PolicyVersion.objects.get().version
    in_threads(lambda: one(acme, "a", True), lambda: one(globex, "g", False))
    assert AuditEvent.objects.filter(verb="changed").count() == 2 * rounds
    assert PolicyVersion.objects.get().version == version + 2 * rounds
    assert list(broken_chains()) == []


def test_a_commit_that_waits_for_a_row_keeps_no_other_commit_waiting(
    acme: Project, globex: Project
) -> None:
    """The log's lock is taken after a commit's foreign keys have theirs, or who holds the row and
    commits would wait for who waits for the row."""

    def refer_to_globex() -> None:
        try:
            with operator_scope("test"):
                add_quota(acme, "before")
                Project.objects.create(tenant_id=globex.tenant_id, name="web")
                add_quota(acme, "after")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            # The name is unique, so the row is locked against what refers to it.
            Tenant.objects.filter(id=globex.tenant_id).update(name="Globex Inc.")
            waiting = pool.submit(refer_to_globex)
            _until_somebody_waits(waiting)
            add_quota(globex, "last")
        waiting.result(timeout=TIMEOUT_SECONDS)
    assert quotas_in_order(acme) == ["before", "after"]
    assert list(broken_chains()) == []


def _until_somebody_waits(work: "Future[None]") -> None:
    deadline = monotonic() + TIMEOUT_SECONDS
    while monotonic() < deadline and not work.done():
        if somebody_waits():
            return
    pytest.fail("nobody came to wait")


def test_writers_at_the_same_time_leave_whole_chains_and_every_change(
    acme: Project, globex: Project
) -> None:
    """Each with changes of both tenants and of what has none, policy too, some taken back."""
    writers, rounds = 8, 12

    def changes(name: str, either: Project) -> list[Callable[[], object]]:
        return [
            lambda: add_quota(acme, f"a{name}"),
            lambda: add_quota(globex, f"g{name}"),
            lambda: User.objects.create(email=f"{name}@example.org"),
            lambda: Project.objects.create(tenant_id=either.tenant_id, name=name),
            lambda: _take_back(lambda: add_quota(acme, "never")),
        ]

    def write(writer: int) -> None:
        choose = random.Random(writer)
        for number in range(rounds):
            in_some_order = changes(f"{writer}-{number}", choose.choice([acme, globex]))
            choose.shuffle(in_some_order)
            with operator_scope("test"):
                for change in in_some_order:
                    change()
            _take_back(lambda: add_quota(globex, "never"))

    in_threads(*(partial(write, writer) for writer in range(writers)))
    assert list(broken_chains()) == []
    assert left_pending() == 0
    for project, letter in ((acme, "a"), (globex, "g")):
        expected = [[f"{letter}{writer}-{n}" for n in range(rounds)] for writer in range(writers)]
        limits = quotas_in_order(project)
        assert sorted(limits) == sorted(itertools.chain(*expected))
        for of_writer in expected:
            assert [limit for limit in limits if limit in of_writer] == of_writer


def _take_back(change: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError), operator_scope("test"):
        change()
        raise RuntimeError("on purpose")
