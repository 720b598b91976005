"""The price book: entered, closed, never changed; and what is refused."""

import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from psycopg.errors import CheckViolation, ExclusionViolation, InsufficientPrivilege

from tenants.billing.models import PoolCost, Price, PriceCorrection, TierMultiplier
from tenants.billing.pricing import price_book
from tenants.billing.pricing.tiers import check_rename, prices_naming
from tenants.models import PolicyChange, Project, Tier
from tests.support.refusals import database_refuses, raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
HOUR = datetime.timedelta(hours=1)
AMOUNTS = [f"{kind}_micros_per_million_tokens" for kind in ("prompt", "cached", "completion")]


def a_price(amount: Any = 7, **fields: Any) -> Price:
    given: dict[str, Any] = {"model": "m", **fields}
    for name in AMOUNTS:
        given.setdefault(name, amount)
    return Price(**given)


def test_a_price_takes_the_place_of_the_one_that_holds() -> None:
    first = price_book.enter(a_price(7))
    later = timezone.now() + HOUR
    second = price_book.enter(a_price(8, effective_from=later))
    first.refresh_from_db()
    assert first.effective_until == second.effective_from == later
    assert second.effective_until is None
    told = Price.objects.in_policy()["m"]
    assert [(each.prompt, each.until_ms) for each in told] == [(7, told[1].from_ms), (8, None)]


def test_one_that_takes_anothers_place_waits_until_gateways_know() -> None:
    first = price_book.enter(a_price())
    second = price_book.enter(a_price())
    assert second.effective_from - first.effective_from >= price_book.LEAD


def test_what_has_ended_is_not_told_to_gateways() -> None:
    price_book.end(price_book.enter(a_price()))
    price_book.enter(a_price(9))
    assert [each.prompt for each in Price.objects.in_policy()["m"]] == [9]


@pytest.mark.parametrize("beside", [{"model": "other"}, {"tier": "premium"}, {"adapter": "law"}])
def test_another_place_has_a_period_of_its_own(acme: Project, beside: dict[str, Any]) -> None:
    kept = price_book.enter(a_price())
    price_book.enter(a_price(**beside))
    kept.refresh_from_db()
    assert kept.effective_until is None


def test_overlapping_periods_are_refused_by_the_book_and_by_the_database() -> None:
    now = timezone.now()
    price_book.enter(a_price(effective_from=now + HOUR, effective_until=now + 3 * HOUR))
    overlapping: dict[str, Any] = {
        "effective_from": now + 2 * HOUR,
        "effective_until": now + 4 * HOUR,
    }
    with raises_invalid("period_overlap"):
        price_book.enter(a_price(**overlapping))
    refused = database_refuses(ExclusionViolation, constraint="price_periods_disjoint")
    with refused, transaction.atomic():
        a_price(**overlapping).save()
    price_book.enter(a_price(effective_from=now + 3 * HOUR))


@pytest.mark.parametrize(
    ("amount", "code"),
    [(-1, "min_value"), (0.5, "invalid"), ("0.5", "invalid"), (Decimal("0.5"), "invalid")],
)
def test_a_negative_or_fractional_price_is_refused(amount: Any, code: str) -> None:
    with raises_invalid(code, *AMOUNTS):
        price_book.enter(a_price(amount))
    assert not Price.objects.exists()


def test_a_price_of_more_than_a_dollar_a_token_is_refused() -> None:
    with raises_invalid("max_value", *AMOUNTS, limit_value=10**12):
        price_book.enter(a_price(10**12 + 1))
    price_book.enter(a_price(10**12))


@pytest.mark.parametrize("amount", AMOUNTS)
def test_a_negative_price_is_refused_by_the_database_too(amount: str) -> None:
    refused = database_refuses(CheckViolation, constraint=f"billing_price_{amount}_check")
    with refused, transaction.atomic():
        a_price(**{amount: -1}).save()


def test_a_price_of_the_past_is_refused() -> None:
    past = timezone.now() - HOUR
    with raises_invalid("in_past", "effective_from"):
        price_book.enter(a_price(effective_from=past))
    with database_refuses(constraint="period_not_begun_in_past"), transaction.atomic():
        a_price(effective_from=past).save()


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("period_closed_once", "UPDATE billing_price SET prompt_micros_per_million_tokens = 1"),
        (
            "period_not_ended_in_past",
            "UPDATE billing_price SET effective_until = now() - interval '1 second'",
        ),
        (
            "period_closed_once",
            "UPDATE billing_price SET effective_from = now() + interval '1 day'",
        ),
        ("append_only", "DELETE FROM billing_price"),
        ("period_closed_once", "UPDATE billing_poolcost SET gpus_per_worker = 9"),
        ("append_only", "UPDATE billing_pricecorrection SET reason = 'other'"),
    ],
)
def test_nothing_of_the_book_is_changed_in_place(rule: str, change: str) -> None:
    price_book.enter(a_price())
    price_book.enter(PoolCost(pool="p", micros_per_gpu_hour=2_500_000))
    error = InsufficientPrivilege if rule == "append_only" else CheckViolation
    with (
        database_refuses(error, constraint=rule),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(change)


def test_an_end_is_said_once() -> None:
    price = price_book.enter(a_price())
    price_book.end(price, timezone.now() + HOUR)
    with raises_invalid("already_ended", until=price.effective_until):
        price_book.end(price, timezone.now() + 2 * HOUR)
    price.effective_until = timezone.now() + 2 * HOUR
    with database_refuses(constraint="period_closed_once"), transaction.atomic():
        price.save()


def test_a_price_names_a_tier_that_there_is() -> None:
    with raises_invalid("invalid_choice", "tier"):
        price_book.enter(a_price(tier="nonesuch"))


@pytest.mark.usefixtures("acme")
def test_a_tier_that_a_price_names_is_neither_renamed_nor_removed_until_that_has_ended() -> None:
    price = price_book.enter(a_price(tier="batch"))
    tier = Tier.objects.get(name="batch")
    with raises_invalid("in_use", "name"):
        check_rename(tier, "cheap")
    assert prices_naming(tier) == [str(price)]
    check_rename(tier, "batch")
    tier.name = "cheap"
    for change in (tier.save, Tier.objects.filter(name="batch").delete):
        refused = database_refuses(constraint="priced_tier_stays", models=["m"])
        with refused, transaction.atomic():
            change()
    price_book.end(price)
    check_rename(Tier.objects.get(name="batch"), "cheap")
    tier.save()
    tier.delete()


@pytest.mark.usefixtures("acme")
def test_a_price_of_one_tier_keeps_no_other_tier_from_its_change() -> None:
    price_book.enter(a_price(tier="batch"))
    price_book.enter(a_price())
    free = Tier.objects.get(name="free")
    check_rename(free, "trial")
    free.name = "trial"
    free.save()
    Tier.objects.filter(name="batch").update(weight=3, price_multiplier="0.4")


def test_a_price_reaches_the_gateways() -> None:
    before = PolicyChange.objects.count()
    price = price_book.enter(a_price())
    price_book.end(price)
    assert PolicyChange.objects.count() == before + 2


def test_checking_enters_nothing() -> None:
    price_book.check(a_price())
    assert not Price.objects.exists()


def a_correction(begin: datetime.timedelta, end: datetime.timedelta, reason: str) -> None:
    now = timezone.now()
    correction = PriceCorrection(
        model="m",
        prompt_micros_per_million_tokens=1,
        cached_micros_per_million_tokens=1,
        completion_micros_per_million_tokens=1,
        effective_from=now + begin,
        effective_until=now + end,
        reason=reason,
    )
    correction.full_clean()
    correction.save()


def test_a_correction_is_of_the_past_and_says_why() -> None:
    a_correction(-2 * HOUR, -HOUR, "entered a day late")
    with raises_invalid("not_in_past"):
        a_correction(-2 * HOUR, HOUR, "entered a day late")
    with raises_invalid("period_order"):
        a_correction(-HOUR, -2 * HOUR, "entered a day late")
    with raises_invalid("blank", "reason"):
        a_correction(-2 * HOUR, -HOUR, "")


def test_what_a_tier_multiplied_by_is_remembered_however_it_is_changed(acme: Project) -> None:
    Tier.objects.filter(name="premium").update(price_multiplier="1.5")
    Tier.objects.filter(name="premium").update(weight=9)
    noted = TierMultiplier.objects.filter(tier="premium").order_by("id")
    assert [row.permille for row in noted][-1] == 1500
    assert noted.count() == 2
