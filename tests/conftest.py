"""Fixtures for every test. The servers behind them are in `tests/support/servers.py`."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, date, datetime
from types import SimpleNamespace

import hypothesis
import pytest
from control_plane import redis_acl
from django.core.cache import cache
from django.core.management import call_command
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from inference.redis_functions import LIBRARIES, library_text
from inference.usage.partitions import make_partitions, month_of, months_later
from tenants.isolation.roles import OPERATOR_ROLE
from tenants.isolation.scoping import Scope, assume_scope, operator_scope
from tenants.policy.writer import rebuild_policy
from tests.support.database import Remembered, TableEmptier, commits, shared
from tests.support.doors import no_door_writes
from tests.support.live_stack import run_live_stack
from tests.support.redis_servers.keys import keys_without_end
from tests.support.servers import TestServers, servers
from tests.support.signals.otlp_receiver import otlp_receiver
from tests.support.stack_addresses import LiveStack
from tests.support.two_tenants import TwoTenants, two_tenants
from tests.support.usage_entries import POOL as USAGE_POOL

# Of each property `make test` tries a few examples, `make test-all` many. A machine under load is
# slow, and most of these tests share a database or a Redis between their examples.
hypothesis.settings.register_profile(
    "quick",
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.register_profile(
    "thorough", hypothesis.settings.get_profile("quick"), max_examples=100
)
hypothesis.settings.load_profile("quick")


@pytest.fixture(scope="session")
def test_servers() -> TestServers:
    """This run's PostgreSQL (not started until the database is asked for) and Redis servers."""
    return servers()


@pytest.fixture(scope="session")
def django_db_setup(test_servers: TestServers, django_db_blocker: DjangoDbBlocker) -> None:
    """In place of pytest-django's own, which would make a database and sign in as its owner. The
    whole server is this run's own; tests sign in as the web role, as the product does."""
    test_servers.start_postgres()
    with django_db_blocker.unblock():
        call_command("migrate", verbosity=0)
        # Tests that need a day in the past take one of January, or yesterday, which on the first of
        # a month is of the one before: a migration makes none of what is over.
        this_month = month_of(datetime.now(UTC))
        make_partitions([date(2026, 1, 1), months_later(this_month, -1)], using="owner")
        connections["owner"].close()


@pytest.fixture(scope="session", autouse=True)
def _empty_tables_after_commits(test_servers: TestServers) -> Iterator[None]:
    """In place of Django's own, which truncates: the web role may not, and it takes long."""
    emptier = TableEmptier(test_servers.superuser_url)
    TransactionTestCase._fixture_teardown = lambda _: emptier.empty()  # type: ignore[attr-defined]
    yield
    emptier.close()


@pytest.fixture(scope="session", autouse=True)
def _no_door_writes_past_verbs() -> Iterator[None]:
    """Has each statement of the suite looked at: see tests/support/doors.py."""

    def watch(connection: BaseDatabaseWrapper, **_: object) -> None:
        if no_door_writes not in connection.execute_wrappers:
            connection.execute_wrappers.append(no_door_writes)

    connection_created.connect(watch)
    yield
    connection_created.disconnect(watch)


@pytest.fixture(scope="session")
def _both_redis(test_servers: TestServers) -> Iterator[tuple[SyncRedis, SyncRedis]]:
    with (
        SyncRedis.from_url(test_servers.dispatch_redis.url) as dispatch,
        SyncRedis.from_url(test_servers.redis.url) as other,
    ):
        yield dispatch, other


@pytest.fixture(autouse=True)
def _every_key_has_an_end(_both_redis: tuple[SyncRedis, SyncRedis]) -> Iterator[None]:
    """What the test has left in either Redis ends by itself, or is bounded by what else there is:
    see tests/support/redis_servers/keys.py."""
    yield
    problems = keys_without_end(*_both_redis)
    if problems:
        for redis in _both_redis:
            redis.flushdb()  # the next test is not to be blamed
        pytest.fail("Keys without an end:\n" + "\n".join(problems))


@pytest.fixture
def dispatch_redis_url(test_servers: TestServers) -> str:
    """The dispatch Redis for the test itself, which may do everything there."""
    return test_servers.dispatch_redis.url


@pytest.fixture
def gateway_redis_url(test_servers: TestServers) -> str:
    """The dispatch Redis as a gateway gets it."""
    return test_servers.dispatch_redis.url_of(redis_acl.GATEWAY)


@pytest.fixture
def worker_redis_url(test_servers: TestServers) -> Callable[[str], str]:
    """The dispatch Redis as the workers of a pool get it, by the pool."""
    return test_servers.worker_redis_url


@pytest.fixture
def redis_url(test_servers: TestServers) -> str:
    return test_servers.redis.url


@pytest.fixture
def redis(dispatch_redis_url: str) -> Iterator[SyncRedis]:
    """The dispatch Redis, emptied, for tests without an event loop: one pool is known."""
    with SyncRedis.from_url(dispatch_redis_url) as client:
        client.flushall()
        client.sadd(keys.known_pools(), USAGE_POOL)
        yield client


@pytest.fixture
async def dispatch_redis(dispatch_redis_url: str) -> AsyncIterator[Redis]:
    """A client of the dispatch Redis, emptied, with our functions loaded."""
    client = Redis.from_url(dispatch_redis_url, socket_timeout=None)
    await client.flushall()
    for library in LIBRARIES:
        await client.function_load(library_text(library), replace=True)
    yield client
    await client.aclose()


@pytest.fixture(scope="session")
def live_stack() -> Iterator[LiveStack]:
    """One live stack with the real vLLM, shared by all tests of a run. Takes as long to start as an
    engine: mark what uses it `engine` and `stack`."""
    with (
        otlp_receiver() as receiver,
        run_live_stack(PENSTOCK_TRACES_ENDPOINT=receiver.url) as stack,
    ):
        yield replace(stack, traces=receiver)


@pytest.fixture
def one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """django-ratelimit counts in windows of a minute: all of the test lies in one, and nothing of
    other tests does."""
    cache.clear()
    now = time.time()
    monkeypatch.setattr("django_ratelimit.core.time", SimpleNamespace(time=lambda: now))


@pytest.fixture(scope="module")
def _shared_houses(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[TwoTenants | None]:
    """Acme and Globex for all tests of a module; None where its tests commit and must each make
    their own."""
    tests = [item for item in request.session.items if item.path == request.path]
    if all(map(commits, tests)):
        yield None
        return
    if any(map(commits, tests)):
        raise pytest.UsageError(
            f"{request.path} has tests that commit beside tests that do not, and both use Acme and "
            "Globex: give those that commit a file of their own."
        )
    with shared(two_tenants, django_db_blocker) as houses:
        yield houses


@pytest.fixture(scope="session")
def _committed_houses(test_servers: TestServers) -> Iterator[Remembered[TwoTenants]]:
    remembered = Remembered(test_servers.superuser_url, two_tenants)
    yield remembered
    remembered.close()


@pytest.fixture
def houses(
    _shared_houses: TwoTenants | None, _committed_houses: Remembered[TwoTenants], db: None
) -> TwoTenants:
    """Acme and Globex with one of everything. A test may change them, in the database and here."""
    if _shared_houses:
        return deepcopy(_shared_houses)
    houses = _committed_houses.committed()
    rebuild_policy()  # as each commit does
    return houses


@pytest.fixture
def operators_eye(db: None) -> Iterator[None]:
    """The test looks across the tenants' walls, as an operator's command does."""
    with operator_scope("test"):
        yield


@pytest.fixture
def operators_session(transactional_db: None) -> Iterator[None]:
    """The same for a test that commits: its own statements run as the operator role, outside of
    any transaction."""
    with assume_scope(Scope(reason="test")):
        with connection.cursor() as cursor:
            cursor.execute(f"SET ROLE {OPERATOR_ROLE}")
        yield
    # The connection with this role may be back in the pool by now, and is for nobody else.
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
