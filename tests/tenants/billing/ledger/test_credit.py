"""Credit and money that come and go, each booked once; what is reserved is not taken back."""

import datetime
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress

import pytest
from django.db import OperationalError, connection
from redis import Redis

from gpu_workers.protocol import keys
from tenants.billing.ledger import balances, credit, holds
from tenants.billing.ledger.posting import Entry, Posting, post
from tenants.billing.ledger.statements import promotions_left
from tenants.billing.models import AccountName, LedgerTransaction, TransactionKind
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope
from tenants.models import PolicyChange, Project
from tenants.policy.check import policy_problems
from tenants.policy.writer import reconcile_policy
from tests.support.billing.prepaid import counted, reserve, told, use
from tests.support.refusals import raises_conflict, raises_invalid

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("ledger_is_whole"),
]
HOUR = datetime.timedelta(hours=1)


def test_gateways_are_told_of_credit_as_it_comes_and_usage_changes_nothing_of_it(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    assert told(redis, tenant_id) == [0]
    credit.top_up(tenant_id, 100, reference="payment 1")
    credit.grant_promotion(tenant_id, 10, reference="welcome")
    assert told(redis, tenant_id) == [110]
    use(tenant_id, 30)
    assert balances.spendable([tenant_id]) == {tenant_id: 110}
    held = balances.balance_of(tenant_id)
    assert (held.promotional_nanos, held.prepaid_nanos, held.credit_nanos) == (0, 80, 80)
    assert counted(redis, tenant_id)["settled"] == 30, "Redis is told what it may have lost"


def test_gateways_are_told_where_usage_went_beyond_the_credit(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    """As after a lost Redis: the limit is what credit and ledger come to, and nothing is left."""
    credit.top_up(tenant_id, 100, reference="payment 1")
    use(tenant_id, 70)
    use(tenant_id, 50)
    assert reconcile_policy()
    assert told(redis, tenant_id) == [120]
    assert counted(redis, tenant_id)["settled"] == 120
    with operator_scope("test"):
        assert list(policy_problems()) == []


def test_a_postpaid_tenant_has_no_such_limit(redis: Redis, acme: Project) -> None:
    credit.top_up(acme.tenant_id, 100, reference="payment 1")
    assert told(redis, acme.tenant_id) == []


def test_a_reference_is_booked_once_and_for_one_amount(tenant_id: uuid.UUID) -> None:
    first = credit.top_up(tenant_id, 100, reference="payment 1")
    assert credit.top_up(tenant_id, 100, reference="payment 1") == first
    with raises_conflict("reference_taken", "reference", kind="top_up", nanos=100):
        credit.top_up(tenant_id, 99, reference="payment 1")
    with raises_conflict("reference_taken", "reference", kind="top_up", nanos=100):
        credit.grant_sla_credit(tenant_id, 100, reference="payment 1")
    assert LedgerTransaction.objects.count() == 1


@pytest.mark.parametrize("reference", ["usage:1", "invoice:7:payment", "re-rating:x", "expiry:y"])
def test_what_is_booked_by_itself_has_references_of_its_own(
    tenant_id: uuid.UUID, reference: str
) -> None:
    with raises_invalid("reference_reserved"):
        credit.top_up(tenant_id, 100, reference=reference)


def test_a_payment_pays_what_is_owed_and_the_rest_is_credit(tenant_id: uuid.UUID) -> None:
    use(tenant_id, 30)
    credit.pay(tenant_id, 100, reference="invoice 7")
    held = balances.balance_of(tenant_id)
    assert (held.owed_nanos, held.prepaid_nanos) == (0, 70)


def test_an_adjustment_is_owed_or_given_back(tenant_id: uuid.UUID) -> None:
    credit.adjust(tenant_id, 50, reference="a", memo="forgotten")
    assert balances.balance_of(tenant_id).owed_nanos == 50
    credit.adjust(tenant_id, -80, reference="b", memo="goodwill")
    held = balances.balance_of(tenant_id)
    assert (held.owed_nanos, held.prepaid_nanos, held.promotional_nanos) == (0, 0, 30)
    assert credit.adjust(tenant_id, -80, reference="b", memo="goodwill").reference == "b"
    with raises_invalid("memo_required"):
        credit.adjust(tenant_id, -80, reference="c", memo=" ")


def test_goodwill_is_money_only_where_money_has_paid(tenant_id: uuid.UUID) -> None:
    """Of 90, the first 20 were given and 30 of what was paid in are spent: 40 are a gift."""
    credit.grant_promotion(tenant_id, 20, reference="welcome")
    credit.top_up(tenant_id, 100, reference="payment 1")
    use(tenant_id, 50)
    credit.adjust(tenant_id, -90, reference="a", memo="goodwill")
    held = balances.balance_of(tenant_id)
    assert (held.promotional_nanos, held.prepaid_nanos) == (60, 100)


def test_goodwill_does_not_end_with_a_promotion_that_has_ended(tenant_id: uuid.UUID) -> None:
    promote(tenant_id, 20, 1)
    credit.adjust(tenant_id, -30, reference="a", memo="goodwill")
    assert expire_in(3) == 1
    assert balances.balance_of(tenant_id).promotional_nanos == 30
    [left] = promotions_left()
    assert (left.given_nanos, left.left_nanos, left.expires_at) == (30, 30, None)


def test_what_was_never_paid_in_is_not_paid_out(tenant_id: uuid.UUID) -> None:
    """As an older version may have left it: a gift among prepaid credit."""
    gift = Posting(
        tenant_id=tenant_id,
        kind=TransactionKind.ADJUSTMENT,
        reference="before",
        entries=[
            Entry(account=AccountName.ADJUSTMENTS, nanos=30),
            Entry(account=AccountName.PREPAID_CREDIT, nanos=-30),
        ],
    )
    with operator_scope("test"):
        post([gift])
    credit.top_up(tenant_id, 10, reference="payment 1")
    with raises_conflict("insufficient_credit", free_nanos=10, asked_nanos=11):
        credit.refund(tenant_id, 11, reference="back")
    credit.refund(tenant_id, 10, reference="back")


def test_no_more_is_written_off_than_is_owed(tenant_id: uuid.UUID) -> None:
    use(tenant_id, 30)
    credit.write_off(tenant_id, 20, reference="a", memo="gone")
    assert balances.balance_of(tenant_id).owed_nanos == 10
    with raises_invalid(
        "insufficient_balance", account="receivable", held_nanos=10, taken_nanos=11
    ):
        credit.write_off(tenant_id, 11, reference="b", memo="gone")


@pytest.mark.parametrize("nanos", [0, -5])
def test_an_amount_is_above_zero(tenant_id: uuid.UUID, nanos: int) -> None:
    with raises_invalid("amount_not_positive"):
        credit.top_up(tenant_id, nanos, reference="a")
    with raises_invalid("amount_not_positive"):
        credit.refund(tenant_id, nanos, reference="b")


def test_what_open_requests_have_reserved_is_not_refunded(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    credit.top_up(tenant_id, 100, reference="payment 1")
    reserve(redis, tenant_id, 40)
    with raises_conflict("insufficient_credit", free_nanos=60, asked_nanos=61):
        credit.refund(tenant_id, 61, reference="back")
    assert counted(redis, tenant_id) == {"reserved": 40}
    credit.refund(tenant_id, 60, reference="back")
    credit.refund(tenant_id, 60, reference="back")
    assert told(redis, tenant_id) == [40]
    assert counted(redis, tenant_id) == {"reserved": 40}, "nothing is set aside any more"
    assert balances.balance_of(tenant_id).prepaid_nanos == 40


def test_two_refunds_at_a_time_leave_open_requests_what_they_have_reserved(
    redis: Redis,
    tenant_id: uuid.UUID,
    elsewhere: Callable[[Callable[[], None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    credit.top_up(tenant_id, 100, reference="payment 1")
    reserve(redis, tenant_id, 40)
    spendable = balances.spendable

    def second_refund() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '200ms'")
        credit.refund(tenant_id, 50, reference="second")

    def told_late(tenant_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
        monkeypatch.setattr(holds, "spendable", spendable)
        told = spendable(tenant_ids)
        with suppress(OperationalError):  # it waits for the first one
            elsewhere(second_refund)
        return told

    monkeypatch.setattr(holds, "spendable", told_late)
    with suppress(Conflict):
        credit.refund(tenant_id, 50, reference="first")
    assert balances.balance_of(tenant_id).prepaid_nanos == 50


def test_no_credit_is_taken_back_while_redis_has_lost_what_is_reserved(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    credit.top_up(tenant_id, 100, reference="payment 1")
    redis.delete(keys.policy_version())
    with pytest.raises(holds.ReservationsLost):
        credit.refund(tenant_id, 30, reference="refund 1")
    with operator_scope("test"):
        assert balances.balance_of(tenant_id).prepaid_nanos == 100
    assert not any(counted(redis, tenant_id).values())


def test_the_hold_of_a_process_that_died_is_released(redis: Redis, tenant_id: uuid.UUID) -> None:
    credit.top_up(tenant_id, 100, reference="payment 1")
    hold_id = holds.new_hold_id()
    assert holds.place_hold(tenant_id, hold_id, 30) == 30
    assert holds.place_hold(tenant_id, hold_id, 30) == 30
    assert holds.place_hold(tenant_id, holds.new_hold_id(), 90) == 70
    assert holds.release_stale_holds() == 0
    assert holds.release_stale_holds(older_than_seconds=-1) == 2
    assert counted(redis, tenant_id) == {"reserved": 0}


def test_a_hold_that_is_under_way_outlives_a_wall_clock_that_is_set(
    redis: Redis, tenant_id: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    credit.top_up(tenant_id, 100, reference="payment 1")
    assert holds.place_hold(tenant_id, holds.new_hold_id(), 30) == 30
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + 6 * 3_600_000_000_000)
    assert holds.release_stale_holds() == 0
    assert counted(redis, tenant_id)["reserved"] == 30


def promote(tenant_id: uuid.UUID, nanos: int, hours: int | None) -> None:
    now = datetime.datetime.now(datetime.UTC)
    credit.grant_promotion(
        tenant_id,
        nanos,
        reference=f"promotion {uuid.uuid4()}",
        expires_at=None if hours is None else now + hours * HOUR,
    )


def expire_in(hours: float) -> int:
    now = datetime.datetime.now(datetime.UTC)
    return credit.expire_promotions(now + hours * HOUR + credit.EXPIRY_GRACE)


def test_a_promotion_ends_and_what_ends_first_is_spent_first(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    promote(tenant_id, 50, hours=None)
    promote(tenant_id, 30, hours=2)
    promote(tenant_id, 20, hours=1)
    use(tenant_id, 25)
    assert expire_in(0.5) == 0
    # 25 were of the two that end: 20 of the first, 5 of the second.
    assert expire_in(1.5) == 0
    assert expire_in(2.5) == 1
    assert balances.balance_of(tenant_id).promotional_nanos == 50
    assert told(redis, tenant_id) == [75]
    assert expire_in(2.5) == 0


def test_a_promotion_that_is_reserved_ends_when_its_requests_have(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    promote(tenant_id, 30, hours=1)
    reserve(redis, tenant_id, 30)
    assert expire_in(1.5) == 0
    reserve(redis, tenant_id, -30)
    assert expire_in(1.5) == 1
    assert told(redis, tenant_id) == [0]


def test_credit_that_has_expired_is_not_given(tenant_id: uuid.UUID) -> None:
    with raises_invalid("in_past"):
        promote(tenant_id, 30, hours=-1)


def test_a_change_of_credit_is_a_change_of_policy(tenant_id: uuid.UUID) -> None:
    before = PolicyChange.objects.count()
    credit.grant_sla_credit(tenant_id, 5, reference="month 1")
    assert PolicyChange.objects.count() == before + 1
    use(tenant_id, 5)
    assert PolicyChange.objects.count() == before + 1
