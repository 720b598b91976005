"""The price book takes over the prices of before it: a database of the old version, with prices in
it, is migrated to today's."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest
from pytest_django import DjangoDbBlocker

from tenants.billing.models import Price
from tests.support.old_databases import OldDatabase, old_database
from tests.support.servers import TestServers

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


@pytest.fixture(scope="module")
def database(
    test_servers: TestServers, django_db_blocker: DjangoDbBlocker
) -> Iterator[OldDatabase]:
    """With old prices and a tier, as migrated to today."""
    with (
        django_db_blocker.unblock(),
        old_database(test_servers, "before_the_price_book", BEFORE) as database,
    ):
        database.add_tier(BEFORE, name="gold", price_multiplier="1.250")
        database.add(BEFORE, "tenants.PolicyChange", part="everything")
        with database.owner.cursor() as cursor:
            cursor.executemany(ENTER_PRICES, OLD_PRICES)
        database.migrate_to_today()
        yield database


def test_each_old_price_holds_until_the_next_of_its_model(database: OldDatabase) -> None:
    kept = database.rows(
        "SELECT id, model, prompt_micros_per_million_tokens, cached_micros_per_million_tokens,"
        " completion_micros_per_million_tokens, effective_from, effective_until"
        " FROM billing_price ORDER BY model, effective_from"
    )
    oldest, newest, between, other = OLD_PRICES
    assert kept == [(*oldest, MARCH), (*between, MAY), (*newest, None), (*other, None)]


def test_old_prices_are_of_all_tiers_and_adapters_and_without_a_discount(
    database: OldDatabase,
) -> None:
    places = "SELECT DISTINCT tier, adapter, batch_discount_permille FROM billing_price"
    assert database.rows(places) == [("", "", 0)]


def test_gateways_are_given_the_prices_that_hold(database: OldDatabase) -> None:
    told = Price.objects.using(database.name).in_policy()
    assert {model: [price.prompt for price in prices] for model, prices in told.items()} == {
        "model-a": [200],
        "model-b": [0],
    }
    change = database.rows("SELECT part FROM tenants_policychange ORDER BY version DESC LIMIT 1")
    assert change == [("models",)], "a snapshot that is there has to be written anew"


def test_tiers_are_known_to_have_always_multiplied_by_what_they_do(database: OldDatabase) -> None:
    noted = "SELECT tier, permille, effective_from FROM billing_tiermultiplier"
    [(tier, permille, since)] = database.rows(noted)
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
def test_an_old_price_is_guarded_as_a_new_one(database: OldDatabase, change: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="nothing is changed"):
        database.rows(change)


def test_a_new_price_takes_the_place_of_an_old_one(database: OldDatabase) -> None:
    with database.owner.transaction(force_rollback=True):
        with pytest.raises(psycopg.errors.ExclusionViolation), database.owner.transaction():
            database.owner.execute(A_NEW_PRICE)
        database.owner.execute(
            "UPDATE billing_price SET effective_until = now() + interval '5 seconds'"
            " WHERE model = 'model-b'"
        )
        database.owner.execute(A_NEW_PRICE)


def test_the_old_table_is_gone_with_its_prices_taken_over(database: OldDatabase) -> None:
    assert database.rows("SELECT to_regclass('tenants_price')") == [(None,)]
