"""The price book takes over the prices of before it: a database of the old version, with prices in
it, is migrated to today's."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from control_plane.database_roles import prepare_database
from control_plane.local_stack.services import POSTGRES_NAME
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from psycopg.conninfo import make_conninfo
from pytest_django import DjangoDbBlocker

from tenants.billing.models import Price
from tests.servers import TestServers

DATABASE = "before_the_price_book"
BEFORE = [("billing", "0001_ledger")]
JANUARY, MARCH, MAY = (datetime(2026, month, 1, tzinfo=UTC) for month in (1, 3, 5))
ENTER_PRICES = """
INSERT INTO tenants_price (
    id, model, prompt_micros_per_million_tokens, cached_micros_per_million_tokens,
    completion_micros_per_million_tokens, created_at)
VALUES (%s, %s, %s, %s, %s, %s)
"""
# As they were entered: not in the order of their time.
OLD_PRICES = [
    (uuid.uuid4(), "model-a", 300, 30, 900, JANUARY),
    (uuid.uuid4(), "model-a", 200, 20, 600, MAY),
    (uuid.uuid4(), "model-a", 250, 25, 800, MARCH),
    (uuid.uuid4(), "model-b", 0, 0, 7, MARCH),
]

A_NEW_PRICE = """
INSERT INTO billing_price (
    id, model, tier, adapter, prompt_micros_per_million_tokens, cached_micros_per_million_tokens,
    completion_micros_per_million_tokens, batch_discount_permille, effective_from)
VALUES (gen_random_uuid(), 'model-b', '', '', 1, 1, 1, 0, now() + interval '5 seconds')
"""

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def _unblocked(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield


@pytest.fixture(scope="module")
def database(test_servers: TestServers, _unblocked: None) -> Iterator[Connection]:
    """Of its own, that the old version was migrated from, as the owner of its tables."""
    test_servers.start_postgres()
    postgres = test_servers.postgres
    superuser = {"user": POSTGRES_NAME, "password": postgres.password, "dbname": "postgres"}
    admin_url = make_conninfo(postgres.owner_url, **superuser)
    passwords = {
        "owner_password": postgres.owner_password,
        "web_password": postgres.web_password,
    }
    prepare_database(admin_url, DATABASE, **passwords)
    connections.databases[DATABASE] = {**connections.databases["owner"], "NAME": DATABASE}
    try:
        migrate(BEFORE)
        owner_url = make_conninfo(postgres.owner_url, dbname=DATABASE)
        with psycopg.connect(owner_url, autocommit=True) as owner:
            add_a_tier(price_multiplier="1.250")
            with owner.cursor() as cursor:
                cursor.executemany(ENTER_PRICES, OLD_PRICES)
            owner.execute(
                "INSERT INTO tenants_policychange (id, part, row_ids)"
                " VALUES (gen_random_uuid(), 'everything', '{}')"
            )
            migrate(newest())
            yield owner
    finally:
        connections[DATABASE].close()
        del connections[DATABASE]
        del connections.databases[DATABASE]
        with psycopg.connect(admin_url, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {DATABASE}")


def migrate(targets: list[tuple[str, str]]) -> None:
    MigrationExecutor(connections[DATABASE]).migrate(targets)


def newest() -> list[tuple[str, str]]:
    targets: list[tuple[str, str]] = MigrationExecutor(
        connections[DATABASE]
    ).loader.graph.leaf_nodes()
    return targets


def add_a_tier(**fields: Any) -> None:
    """With the columns of the old version."""
    tier = (
        MigrationExecutor(connections[DATABASE])
        .loader.project_state(BEFORE)
        .apps.get_model("tenants", "Tier")
    )
    counts = (
        "weight",
        "ttft_target_ms",
        "max_queue_seconds",
        "requests_per_minute",
        "max_concurrent_requests",
        "default_max_output_tokens",
        "max_output_tokens",
    )
    tier.objects.using(DATABASE).create(
        name="gold", priority=0, **dict.fromkeys(counts, 1), **fields
    )


def test_each_old_price_holds_until_the_next_of_its_model(database: Connection) -> None:
    kept = database.execute(
        "SELECT id, model, prompt_micros_per_million_tokens, cached_micros_per_million_tokens,"
        " completion_micros_per_million_tokens, effective_from, effective_until"
        " FROM billing_price ORDER BY model, effective_from"
    ).fetchall()
    oldest, newest, between, other = OLD_PRICES
    assert kept == [(*oldest, MARCH), (*between, MAY), (*newest, None), (*other, None)]


def test_old_prices_are_of_all_tiers_and_adapters_and_without_a_discount(
    database: Connection,
) -> None:
    places = "SELECT DISTINCT tier, adapter, batch_discount_permille FROM billing_price"
    assert database.execute(places).fetchall() == [("", "", 0)]


def test_gateways_are_given_the_prices_that_hold(database: Connection) -> None:
    told = Price.objects.using(DATABASE).in_policy()
    assert {model: [price.prompt for price in prices] for model, prices in told.items()} == {
        "model-a": [200],
        "model-b": [0],
    }
    change = database.execute(
        "SELECT part FROM tenants_policychange ORDER BY version DESC LIMIT 1"
    ).fetchone()
    assert change == ("models",), "a snapshot that is there has to be written anew"


def test_tiers_are_known_to_have_always_multiplied_by_what_they_do(database: Connection) -> None:
    noted = "SELECT tier, permille, effective_from FROM billing_tiermultiplier"
    [(tier, permille, since)] = database.execute(noted).fetchall()
    assert (tier, permille) == ("gold", 1250)
    assert since < JANUARY


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE billing_price SET prompt_micros_per_million_tokens = 1 WHERE model = 'model-b'",
        "UPDATE billing_price SET effective_until = now() WHERE effective_until IS NOT NULL",
    ],
    ids=["what it is", "when it ended"],
)
def test_an_old_price_is_guarded_as_a_new_one(database: Connection, change: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="nothing is changed"):
        database.execute(change.encode())


def test_a_new_price_takes_the_place_of_an_old_one(database: Connection) -> None:
    with database.transaction(force_rollback=True):
        with pytest.raises(psycopg.errors.ExclusionViolation), database.transaction():
            database.execute(A_NEW_PRICE)
        database.execute(
            "UPDATE billing_price SET effective_until = now() + interval '5 seconds'"
            " WHERE model = 'model-b'"
        )
        database.execute(A_NEW_PRICE)


def test_the_old_table_is_gone_with_its_prices_taken_over(database: Connection) -> None:
    assert database.execute("SELECT to_regclass('tenants_price')").fetchone() == (None,)
