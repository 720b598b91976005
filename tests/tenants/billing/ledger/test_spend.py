"""What Redis counts as spent: raised by the ledger, lowered where it was counted twice, checked."""

import uuid
from collections.abc import Iterator

import msgspec
import pytest
from redis import Redis

from gpu_workers.protocol import functions, keys
from inference.admission.limits import packed
from inference.usage.collector import is_all_usage_posted
from tenants.billing.ledger import credit, holds, spend
from tenants.billing.tasks import reconcile_spend
from tenants.isolation.scoping import operator_scope
from tests.support.billing.prepaid import counted, reserve, use

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("ledger_is_whole"),
]


def test_usage_that_is_on_record_before_its_request_is_settled_counts_once(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    prefix = keys.tenant_prefix(str(tenant_id))
    credit.top_up(tenant_id, 100, reference="payment 1")
    claim = msgspec.msgpack.encode(["key", "project", 9, 40])
    redis.fcall(functions.RESERVE, 1, prefix, "r1", "key", "project", "9", "40", claim, packed([]))
    use(tenant_id, 30)
    assert counted(redis, tenant_id) == {"reserved": 40}
    redis.fcall(functions.SETTLE, 1, prefix, "r1", "9", "30")
    assert counted(redis, tenant_id) == {"reserved": 0, "settled": 30}


def test_what_a_lost_redis_had_counted_comes_back_beside_what_is_reserved(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    credit.top_up(tenant_id, 1000, reference="payment 1")
    reserve(redis, tenant_id, 40)
    assert holds.place_hold(tenant_id, holds.new_hold_id(), 5) == 5
    use(tenant_id, 300)
    assert counted(redis, tenant_id)["settled"] == 260, "the open request may be among the 300"
    reserve(redis, tenant_id, -40)
    reconcile_spend.apply()
    assert counted(redis, tenant_id)["settled"] == 300


MINUTE_MS = 60_000


@pytest.fixture
def _own_posting_check() -> Iterator[None]:
    """The test says in place of the floor above whether no usage is on its way."""
    yield
    spend.register_posting_check(is_all_usage_posted)


@pytest.fixture
def all_posted(_own_posting_check: None) -> list[bool]:
    """What the floor above says: whether no usage is on its way."""
    answer = [True]
    spend.register_posting_check(lambda: answer[0])
    return answer


def count_twice(redis: Redis, tenant_id: uuid.UUID) -> None:
    """30 were spent, and after a lost Redis 5 of them were settled once more."""
    credit.top_up(tenant_id, 100, reference="payment 1")
    use(tenant_id, 30)
    redis.hincrby(keys.tenant_balance(str(tenant_id)), "settled", 5)


@pytest.mark.usefixtures("all_posted")
def test_what_was_counted_twice_is_forgotten_at_the_second_look(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    count_twice(redis, tenant_id)
    spend.reconcile_spend(now_ms=0)
    spend.reconcile_spend(now_ms=1)
    assert counted(redis, tenant_id)["settled"] == 35, "not at once, however often it is asked"
    spend.reconcile_spend(now_ms=MINUTE_MS)
    assert counted(redis, tenant_id)["settled"] == 30
    with operator_scope("test"):
        assert list(spend.spend_problems()) == []
    use(tenant_id, 7)
    assert counted(redis, tenant_id)["settled"] == 37, "an outbox that comes late raises it again"


@pytest.mark.usefixtures("all_posted")
def test_of_a_difference_that_changes_goes_what_both_looks_found(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    count_twice(redis, tenant_id)
    spend.reconcile_spend(now_ms=0)
    redis.hincrby(keys.tenant_balance(str(tenant_id)), "settled", 1)
    spend.reconcile_spend(now_ms=MINUTE_MS)
    assert counted(redis, tenant_id)["settled"] == 31
    spend.reconcile_spend(now_ms=2 * MINUTE_MS)
    spend.reconcile_spend(now_ms=3 * MINUTE_MS)
    assert counted(redis, tenant_id)["settled"] == 30


def test_nothing_is_forgotten_while_usage_is_on_its_way(
    redis: Redis, tenant_id: uuid.UUID, all_posted: list[bool]
) -> None:
    count_twice(redis, tenant_id)
    all_posted[0] = False
    for minute in range(3):
        spend.reconcile_spend(now_ms=minute * MINUTE_MS)
    assert counted(redis, tenant_id)["settled"] == 35


@pytest.mark.usefixtures("all_posted")
def test_what_was_counted_twice_is_forgotten_while_a_request_is_open(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    count_twice(redis, tenant_id)
    prefix, claim = keys.tenant_prefix(str(tenant_id)), msgspec.msgpack.encode(["k", "p", 9, 40])
    redis.fcall(functions.RESERVE, 1, prefix, "r1", "k", "p", "9", "40", claim, packed([]))
    spend.reconcile_spend(now_ms=0)
    spend.reconcile_spend(now_ms=MINUTE_MS)
    assert counted(redis, tenant_id) == {"settled": 30, "reserved": 40}
    redis.fcall(functions.SETTLE, 1, prefix, "r1", "9", "20")
    assert counted(redis, tenant_id) == {"settled": 50, "reserved": 0}


@pytest.mark.usefixtures("_own_posting_check")
def test_what_is_settled_during_the_look_is_not_forgotten(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    """It may not be in the ledger that the look reads."""
    count_twice(redis, tenant_id)

    def settle_meanwhile() -> bool:
        redis.hincrby(keys.tenant_balance(str(tenant_id)), "settled", 3)
        return True

    spend.register_posting_check(settle_meanwhile)
    spend.reconcile_spend(now_ms=0)
    use(tenant_id, 3)
    spend.reconcile_spend(now_ms=MINUTE_MS)
    assert counted(redis, tenant_id)["settled"] == 36, "33 on record, and 3 to come"


def test_fsck_finds_what_redis_and_the_ledger_say_of_prepaid_tenants(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    credit.top_up(tenant_id, 100, reference="payment 1")
    use(tenant_id, 30)
    assert list(spend.spend_problems(lag_seconds=0)) == []
    redis.hincrby(keys.tenant_balance(str(tenant_id)), "settled", 5)
    [spent] = spend.spend_problems(lag_seconds=0)
    reserve(redis, tenant_id, 7)
    [reserved] = spend.spend_problems(lag_seconds=0)
    for fact in (str(tenant_id), " 35 ", " 30 "):
        assert fact in spent
    for fact in (str(tenant_id), " 7 "):
        assert fact in reserved
