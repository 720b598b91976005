"""What Redis counts as spent comes down to the ledger again, where nothing may be missing there."""

from typing import cast

import pytest
from django.db import OperationalError
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.usage import UsageEntry
from inference.models import UsageQuarantine
from inference.operations.budgets import rebuild_budgets
from inference.redis_functions import ADMISSION, library_text
from inference.usage import quarantine
from inference.usage.collector import UsageCollector
from tenants.billing.ledger import spend
from tenants.models import ApiKey, BillingMode
from tests.support.projects import make_key
from tests.support.usage_entries import COST_NANOS, POOL, PRICED, append, usage_entry

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]
MINUTE_MS = 60_000


@pytest.fixture
def redis(redis: Redis) -> Redis:
    redis.function_load(library_text(ADMISSION), replace=True)
    return redis


@pytest.fixture
def api_key(redis: Redis, operators_session: None) -> ApiKey:
    key = make_key("Acme")
    key.project.tenant.set_billing_mode(BillingMode.PREPAID)
    return key


def settled(redis: Redis, api_key: ApiKey) -> int:
    found = redis.hget(keys.tenant_balance(str(api_key.tenant_id)), "settled")
    return int(cast(bytes | None, found) or 0)


def settle(redis: Redis, api_key: ApiKey) -> None:
    """As a gateway does when a request that has reserved its cost has ended."""
    redis.hincrby(keys.tenant_balance(str(api_key.tenant_id)), "settled", COST_NANOS)


def look_for(minutes: int) -> None:
    for minute in range(minutes + 1):
        spend.reconcile_spend(now_ms=minute * MINUTE_MS)


def entry_of(api_key: ApiKey) -> UsageEntry:
    return usage_entry(api_key, prices=PRICED)


def test_a_request_that_was_on_record_and_open_when_redis_was_lost_counts_once_in_the_end(
    redis: Redis, api_key: ApiKey
) -> None:
    append(redis, entry_of(api_key))
    UsageCollector(redis).drain()
    redis.delete(keys.tenant_balance(str(api_key.tenant_id)))
    rebuild_budgets(redis)
    settle(redis, api_key)
    assert settled(redis, api_key) == 2 * COST_NANOS
    look_for(minutes=1)
    assert settled(redis, api_key) == COST_NANOS


def test_what_was_counted_twice_goes_while_the_tenant_and_others_go_on(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are always open, and a stream is never seen empty."""
    balance = keys.tenant_balance(str(api_key.tenant_id))
    redis.hset(keys.tenant_reservations(str(api_key.tenant_id)), "open", "")
    redis.hset(balance, mapping={"settled": 5 * COST_NANOS, "reserved": COST_NANOS})

    def collect_while_more_comes(_seconds: float) -> None:
        UsageCollector(redis).drain()
        append(redis, entry_of(api_key))

    append(redis, entry_of(api_key))
    monkeypatch.setattr("inference.usage.collector.time.sleep", collect_while_more_comes)
    spend.reconcile_spend(now_ms=0)
    assert redis.xlen(keys.pool_usage(POOL)), "more has come"
    assert settled(redis, api_key) == 5 * COST_NANOS
    spend.reconcile_spend(now_ms=MINUTE_MS)
    assert settled(redis, api_key) == 2 * COST_NANOS, "as much as was on record by then"


def test_what_was_late_the_first_time_stays_spent(redis: Redis, api_key: ApiKey) -> None:
    settle(redis, api_key)
    spend.reconcile_spend(now_ms=0)
    append(redis, entry_of(api_key))
    UsageCollector(redis).drain()
    for minute in (1, 2, 3):
        spend.reconcile_spend(now_ms=minute * MINUTE_MS)
    assert settled(redis, api_key) == COST_NANOS


def test_what_waits_in_a_stream_stays_spent(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.usage.collector.POSTING_TIMEOUT_SECONDS", 0)
    append(redis, entry_of(api_key))
    settle(redis, api_key)
    look_for(minutes=3)
    assert settled(redis, api_key) == COST_NANOS
    with monkeypatch.context() as patch, pytest.raises(OperationalError):
        patch.setattr("inference.usage.collector.record_entries", fail_to_commit)
        UsageCollector(redis).drain()
    look_for(minutes=3)
    assert settled(redis, api_key) == COST_NANOS, "read, and not committed"
    UsageCollector(redis).drain()
    look_for(minutes=3)
    assert settled(redis, api_key) == COST_NANOS


def fail_to_commit(_entries: object) -> None:
    raise OperationalError("PostgreSQL is away")


@pytest.mark.parametrize("in_the_end", ["discarded", "retried"])
def test_what_is_in_quarantine_stays_spent_until_it_is_discarded(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch, in_the_end: str
) -> None:
    append(redis, entry_of(api_key))
    settle(redis, api_key)
    with monkeypatch.context() as patch:
        patch.setattr("inference.usage.rows.decode_usage", lambda data: 1 / 0)
        UsageCollector(redis).drain()
    look_for(minutes=3)
    assert settled(redis, api_key) == COST_NANOS
    if in_the_end == "discarded":
        UsageQuarantine.objects.all().delete()
    else:
        assert quarantine.retry([]) == (1, 0)
    look_for(minutes=1)
    assert settled(redis, api_key) == (0 if in_the_end == "discarded" else COST_NANOS)


def test_an_outbox_that_comes_back_late_counts_again(redis: Redis, api_key: ApiKey) -> None:
    """Settled, and told by nobody: its stream was lost, and its worker is away."""
    settle(redis, api_key)
    look_for(minutes=1)
    assert settled(redis, api_key) == 0
    append(redis, entry_of(api_key))
    UsageCollector(redis).drain()
    assert settled(redis, api_key) == COST_NANOS
