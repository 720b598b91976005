"""What whoever got into a GPU node can report: nothing that no gateway has admitted is charged.

The entries are those of real requests, changed as such a worker can change them: all but the key
under which gateways prove what they have admitted.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from redis import Redis

from gpu_workers.protocol.messages import Outcome, Prices, TokenUsage
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.usage import UsageEntry
from inference.models import (
    Pool,
    ServedModel,
    UsageProofStart,
    UsageQuarantine,
    UsageRecord,
    WastedAttempt,
)
from inference.models.usage import QuarantineCause
from inference.usage import quarantine
from inference.usage.collector import UsageCollector
from inference.usage.rating.admitted import UNPROVEN_FOR
from tenants.billing.models import LedgerTransaction, Price
from tenants.models import ApiKey
from tests.support.projects import make_key
from tests.support.usage_entries import (
    ARRIVED_MS,
    COST_NANOS,
    POOL,
    PRICED,
    append,
    revenue,
    usage_entry,
    waste_entry,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("operators_session")]

USED = TokenUsage(prompt_tokens=11, cached_tokens=4, completion_tokens=7)


def refused(redis: Redis, *entries: Any, pool: str = POOL) -> UsageQuarantine:
    """The one row in quarantine once they are collected; nothing else came of them."""
    append(redis, *entries, pool=pool)
    UsageCollector(redis).drain()
    assert not UsageRecord.objects.exists()
    assert not WastedAttempt.objects.exists()
    assert not LedgerTransaction.objects.exists()
    return UsageQuarantine.objects.get()


@pytest.mark.parametrize(
    "changes",
    [
        {"prices": Prices(2_000_000, 500_000, 2_000_000, 900)},
        {"prices": Prices(0, 0, 0, 1000)},
        {"prices": replace(PRICED, permille=1000)},
        {"model": "another"},
        {"adapter": "acme/support"},
        {"adapter_version": 2},
        {"tier": "free"},
        {"service_class": "batch"},
        {"labels": {"user": "somebody-else"}},
        {"is_billed": False},
        {"owed": True},
        {"arrived_at_ms": ARRIVED_MS - 60_000},
        {"arrived_at_ms": ARRIVED_MS + 60_000, "finished_at_ms": ARRIVED_MS + 61_000},
        {"request_id": new_request_id(ARRIVED_MS)},
        {"prompt_bound": 10_000, "usage": replace(USED, prompt_tokens=10_000)},
        {"output_bound": 10_000, "usage": replace(USED, completion_tokens=10_000)},
        {"proof": b""},
        {"proof": b"\0" * 32},
        {"proof": b"short"},
    ],
)
def test_nothing_is_charged_of_what_no_gateway_has_admitted(
    redis: Redis, api_key: ApiKey, changes: dict[str, Any]
) -> None:
    row = refused(redis, replace(usage_entry(api_key, prices=PRICED), **changes))
    assert row.cause == QuarantineCause.UNPROVEN
    assert "it claims" in row.reason and "by the price book it would be" in row.reason


def test_the_usage_of_one_tenant_is_not_charged_to_another(redis: Redis, api_key: ApiKey) -> None:
    bobs = make_key("Globex")
    theirs = {
        "tenant_id": str(bobs.project.tenant_id),
        "project_id": str(bobs.project_id),
        "api_key_id": str(bobs.id),
    }
    row = refused(redis, replace(usage_entry(api_key, prices=PRICED), **theirs))
    assert row.cause == QuarantineCause.UNPROVEN
    assert f"claims {COST_NANOS} nano-dollars" in row.reason


@pytest.mark.parametrize(
    ("changes", "figures"),
    [
        ({"usage": replace(USED, prompt_tokens=12)}, "12 prompt tokens, and 11 were reserved"),
        ({"usage": replace(USED, completion_tokens=8)}, "8 completion tokens, and 7 were"),
        ({"wasted_tokens": 8}, "8 wasted tokens, and 7 were"),
        ({"generated_tokens": 1_000_000}, "1000000 generated tokens, and 7 were"),
    ],
)
def test_tokens_beyond_the_reservation_are_not_charged(
    redis: Redis, api_key: ApiKey, changes: dict[str, Any], figures: str
) -> None:
    row = refused(redis, replace(usage_entry(api_key, prices=PRICED), **changes))
    assert row.cause == QuarantineCause.BEYOND_RESERVATION
    assert figures in row.reason


def test_what_a_worker_refused_unrun_may_be_longer_than_was_reserved(
    redis: Redis, api_key: ApiKey
) -> None:
    entry = usage_entry(api_key, prices=PRICED, outcome=Outcome.REFUSED, usage=USED)
    append(redis, replace(entry, usage=replace(USED, prompt_tokens=5000)))
    UsageCollector(redis).drain()
    assert UsageRecord.objects.get().cost_nanos == 0


@pytest.mark.parametrize("names_it", [True, False])
def test_the_request_of_another_pool_is_not_charged(
    redis: Redis, api_key: ApiKey, names_it: bool
) -> None:
    entry = usage_entry(api_key, prices=PRICED, pool="another")
    UsageCollector(redis).pools()
    row = refused(redis, entry if names_it else replace(entry, pool=POOL))
    assert row.cause == (QuarantineCause.INVALID if names_it else QuarantineCause.UNPROVEN)


def test_a_request_that_is_paid_for_is_charged_once_however_often_it_is_reported(
    redis: Redis, api_key: ApiKey
) -> None:
    entry = usage_entry(api_key, prices=PRICED, output_bound=100)
    for _ in range(2):
        append(redis, entry, entry)
        UsageCollector(redis).drain()
    assert revenue(api_key) == COST_NANOS
    assert not UsageQuarantine.objects.exists(), "entries come again, which says nothing"


@pytest.mark.parametrize("at_once", [True, False])
def test_a_second_report_that_claims_more_is_kept_for_operators(
    redis: Redis, api_key: ApiKey, at_once: bool
) -> None:
    entry = usage_entry(api_key, prices=PRICED, output_bound=100)
    more = replace(entry, attempt=2, usage=replace(USED, completion_tokens=100))
    append(redis, entry)
    if not at_once:
        UsageCollector(redis).drain()
    append(redis, more)
    UsageCollector(redis).drain()
    assert revenue(api_key) == COST_NANOS
    row = UsageQuarantine.objects.get()
    assert row.cause == QuarantineCause.REPEATED
    assert f"on record with {COST_NANOS} nano-dollars, and it claims" in row.reason
    assert quarantine.retry([]) == (0, 1)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"model": "another"}, QuarantineCause.UNPROVEN),
        ({"request_id": new_request_id(ARRIVED_MS)}, QuarantineCause.UNPROVEN),
        ({"proof": b""}, QuarantineCause.UNPROVEN),
        ({"completion_tokens": 6}, QuarantineCause.BEYOND_RESERVATION),
        ({"generated_tokens": 6}, QuarantineCause.BEYOND_RESERVATION),
    ],
)
def test_waste_is_believed_no_more(
    redis: Redis, api_key: ApiKey, changes: dict[str, Any], cause: QuarantineCause
) -> None:
    assert refused(redis, replace(waste_entry(api_key), **changes)).cause == cause


def test_a_gateway_of_the_pepper_before_is_believed(
    redis: Redis, api_key: ApiKey, settings: Any
) -> None:
    entry = usage_entry(api_key, prices=PRICED)
    before, settings.PENSTOCK_API_KEY_PEPPER = settings.PENSTOCK_API_KEY_PEPPER, b"of this year"
    append(redis, entry)
    UsageCollector(redis).drain()
    assert UsageQuarantine.objects.get().cause == QuarantineCause.UNPROVEN
    settings.PENSTOCK_PREVIOUS_API_KEY_PEPPERS = (before,)
    assert quarantine.retry([]) == (1, 0)
    assert revenue(api_key) == COST_NANOS


# While gateways of before are being replaced ----------------------------------------------------


def of_before(api_key: ApiKey, arrived: datetime, **changes: Any) -> UsageEntry:
    """Of a request that such a gateway has admitted, at the price that holds."""
    changes = {"prices": Prices(1_000_000, 500_000, 2_000_000, 1000)} | changes
    entry = usage_entry(api_key, int(arrived.timestamp() * 1000), **changes)
    return replace(entry, proof=b"", prompt_bound=0, output_bound=0)


@pytest.fixture
def arrived(api_key: ApiKey) -> datetime:
    """When a request of now arrives, whose model has had a price for a moment. Gateways prove what
    they admit in an hour from now on."""
    UsageProofStart.objects.create(at=datetime.now(UTC) + timedelta(hours=1))
    pool = Pool.objects.create(name=POOL)
    ServedModel.objects.create(name="penstock-demo", pool=pool, context_tokens=1000)
    Price.objects.create(
        model="penstock-demo",
        prompt_micros_per_million_tokens=1_000_000,
        cached_micros_per_million_tokens=500_000,
        completion_micros_per_million_tokens=2_000_000,
    )
    return datetime.now(UTC) + timedelta(milliseconds=1)


def test_a_request_of_before_is_charged_by_the_price_book(
    redis: Redis, api_key: ApiKey, arrived: datetime
) -> None:
    append(redis, of_before(api_key, arrived))
    UsageCollector(redis).drain()
    assert revenue(api_key) == 23_000
    assert UsageRecord.objects.get().owed is None


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"prices": PRICED}, QuarantineCause.PRICES),
        ({"usage": replace(USED, prompt_tokens=16_001)}, QuarantineCause.BEYOND_RESERVATION),
        ({"model": "another"}, QuarantineCause.UNPROVEN),
    ],
)
def test_a_request_of_before_is_rated_by_what_is_known(
    redis: Redis,
    api_key: ApiKey,
    arrived: datetime,
    changes: dict[str, Any],
    cause: QuarantineCause,
) -> None:
    row = refused(redis, of_before(api_key, arrived, **changes))
    assert row.cause == cause
    if cause is QuarantineCause.PRICES:
        assert f"claims {COST_NANOS} nano-dollars, and by the price book it would be 23000" in (
            row.reason
        )


def test_a_request_from_then_on_has_to_be_proven(
    redis: Redis, api_key: ApiKey, arrived: datetime
) -> None:
    UsageProofStart.objects.update(at=arrived - timedelta(minutes=1))
    assert refused(redis, of_before(api_key, arrived)).cause == QuarantineCause.UNPROVEN


def test_after_a_week_nothing_unproven_is_taken(
    redis: Redis, api_key: ApiKey, arrived: datetime
) -> None:
    start = arrived - UNPROVEN_FOR - timedelta(minutes=1)
    UsageProofStart.objects.update(at=start)
    row = refused(redis, of_before(api_key, start - timedelta(minutes=1)))
    assert row.cause == QuarantineCause.UNPROVEN
