"""Operators add prices; what a price names stays."""

from datetime import timedelta

import pytest
from django.forms import model_to_dict
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tenants.billing.models import PoolCost, Price, PriceCorrection
from tenants.isolation.scoping import operator_scope
from tenants.models import Tier
from tests.control_plane.operator_site.records import somebody_who_may, wrong_fields

pytestmark = pytest.mark.django_db
FIELDS = ("prompt", "cached", "completion")
MICROS = "micros_per_million_tokens"
SURE = {"sure": "yes"}


@pytest.mark.usefixtures("one_of_each")
def test_a_price_is_added_and_never_changed(operator: Client) -> None:
    with operator_scope("test"):
        price = Price.objects.get()
    change = reverse("admin:billing_price_change", args=[price.pk])
    assert operator.post(change, {"model": "other"}).status_code == 403
    delete = reverse("admin:billing_price_delete", args=[price.pk])
    assert operator.post(delete, {"post": "yes"}).status_code == 403
    form = {f"{field}_micros_per_million_tokens": "0.000007" for field in FIELDS}
    form |= {"model": "demo", "batch_discount_permille": "0"}
    add = reverse("admin:billing_price_add")
    assert wrong_fields(operator, add, form | {"tier": "nonesuch"}) == {"tier"}
    assert wrong_fields(operator, add, form | {"model": "dmeo"}) == {"model"}
    for wrong in ("0.0000007", "-1", "free", ""):
        assert wrong_fields(operator, add, form | {f"prompt_{MICROS}": wrong}) == {
            f"prompt_{MICROS}"
        }
    understood = operator.post(add, form).content.decode()
    assert "$0.000007 prompt, $0.000007 cached, $0.000007 completion, per million" in understood
    assert "Before: $0.000001 prompt" in understood
    with operator_scope("test"):
        assert len(Price.objects.in_policy()["demo"]) == 1
    assert operator.post(add, form | SURE).status_code == 302
    with operator_scope("test"):
        assert [each.prompt for each in Price.objects.in_policy()["demo"]] == [1, 7]


@pytest.mark.usefixtures("one_of_each")
def test_a_new_price_is_shown_with_what_a_request_costs_by_it(operator: Client) -> None:
    amounts = {f"prompt_{MICROS}": "2", f"cached_{MICROS}": "1", f"completion_{MICROS}": "$4"}
    form = amounts | {"model": "demo", "tier": "batch", "batch_discount_permille": "12.5"}
    form |= {"effective_from_0": "2999-01-31", "effective_from_1": "12:00"}
    page = operator.post(reverse("admin:billing_price_add"), form).content.decode()
    assert "$2.00 prompt, $1.00 cached, $4.00 completion, batch 12.5% less" in page
    assert "from 31 January 2999, 12:00 UTC. There was no such price before." in page
    assert "A request of 1,000 prompt and 500 completion tokens costs $0.004." in page
    assert 'name="effective_from_1" value="12:00"' in page


@pytest.mark.usefixtures("one_of_each")
def test_a_price_is_ended_after_a_page_that_says_what_applies_then(
    operator: Client, client: Client
) -> None:
    with operator_scope("test"):
        price = Price.objects.get()
    page = reverse("admin:billing_price_end_one", args=[price.pk])
    change = reverse("admin:billing_price_change", args=[price.pk])
    assert page in operator.get(change).content.decode()
    assert "This makes demo free now, as no other price applies." in (
        operator.get(page).content.decode()
    )
    past = operator.post(page, SURE | {"at": "2020-01-31"})
    assert "A period ends in the future" in past.content.decode()
    operator.post(page, SURE | {"at": "2999-01-31 18:00"})
    with operator_scope("test"):
        price.refresh_from_db()
    assert price.effective_until is not None and price.effective_until.year == 2999
    assert page not in operator.get(change).content.decode()
    assert "ends at" in operator.post(page, SURE).content.decode()
    client.force_login(somebody_who_may("view_price"))
    assert client.post(page, SURE).status_code in (302, 403)


@pytest.mark.usefixtures("one_of_each")
@pytest.mark.parametrize("model", [Price, PriceCorrection])
def test_a_batch_discount_is_entered_and_shown_in_percent(
    operator: Client, model: type[Price] | type[PriceCorrection]
) -> None:
    kind = model._meta.model_name
    add = reverse(f"admin:billing_{kind}_add")
    form = {f"{field}_micros_per_million_tokens": "7" for field in FIELDS} | {"model": "demo"}
    form |= {"tier": "batch"}
    if model is Price:
        form |= SURE
    else:
        form |= {"reason": "late"} | period(days_ago=2, days=1)
    discount = "batch_discount_permille"
    for wrong in ("12.55", "100.1", "-1", "half", ""):
        assert wrong_fields(operator, add, form | {discount: wrong}) == {discount}
    assert operator.post(add, form | {discount: "12.5"}).status_code == 302
    with operator_scope("test"):
        entered = model.objects.get(batch_discount_permille=125)
    assert entered.batch_discount_permille == 125
    change = reverse(f"admin:billing_{kind}_change", args=[entered.pk])
    page = operator.get(change).content.decode()
    assert "12.5%" in page and "‰" not in page


@pytest.mark.usefixtures("acme")
def test_what_was_typed_as_a_batch_discount_stays_in_the_form(operator: Client) -> None:
    refused = operator.post(reverse("admin:billing_price_add"), {"batch_discount_permille": "7.5"})
    field = refused.context["adminform"].form["batch_discount_permille"]
    assert field.value() == "7.5"


def period(*, days_ago: int, days: int) -> dict[str, str]:
    begin = timezone.now() - timedelta(days=days_ago)
    end = begin + timedelta(days=days)
    return {
        f"effective_{name}_{part}": f"{moment:{how}}"
        for name, moment in (("from", begin), ("until", end))
        for part, how in (("0", "%Y-%m-%d"), ("1", "%H:%M:%S"))
    }


@pytest.mark.usefixtures("acme")
def test_a_tier_that_a_price_names_cannot_be_renamed_or_deleted(operator: Client) -> None:
    tier = Tier.objects.get(name="batch")
    micros = [f"{kind}_micros_per_million_tokens" for kind in FIELDS]
    with operator_scope("test"):
        Price.objects.create(model="demo", tier="batch", **dict.fromkeys(micros, 7))
    change = reverse("admin:tenants_tier_change", args=[tier.pk])
    form = {name: value for name, value in model_to_dict(tier).items() if value is not None}
    assert wrong_fields(operator, change, form | {"name": "cheap"}) == {"name"}
    listing = reverse("admin:tenants_tier_changelist")
    selected = {"action": "delete_selected", "_selected_action": [str(tier.pk)], "post": "yes"}
    for page, answers in (
        (reverse("admin:tenants_tier_delete", args=[tier.pk]), {"post": "yes"}),
        (listing, selected),
    ):
        refused = operator.post(page, answers)
        assert "demo, tier batch" in refused.content.decode()
        assert Tier.objects.filter(pk=tier.pk).exists()
    assert operator.post(change, form | {"weight": "9"}).status_code == 302
    tier.refresh_from_db()
    assert (tier.name, tier.weight) == ("batch", 9)


@pytest.mark.usefixtures("one_of_each")
def test_a_price_and_a_gpus_cost_are_entered_and_shown_in_dollars(operator: Client) -> None:
    amounts = dict(zip(FIELDS, ("$0.15", "0.015", "0.60"), strict=True))
    form = {f"{name}_{MICROS}": amount for name, amount in amounts.items()}
    form |= {"model": "demo", "tier": "batch", "batch_discount_permille": "0"}
    assert operator.post(reverse("admin:billing_price_add"), form | SURE).status_code == 302
    costs = {"pool": "demo", "micros_per_gpu_hour": "2.50", "gpus_per_worker": "2"}
    assert operator.post(reverse("admin:billing_poolcost_add"), costs).status_code == 302
    with operator_scope("test"):
        price = Price.objects.get(tier="batch")
        cost = PoolCost.objects.get()
    entered = [getattr(price, f"{name}_{MICROS}") for name in FIELDS]
    assert (entered, cost.micros_per_gpu_hour) == ([150_000, 15_000, 600_000], 2_500_000)
    for page, shown in (
        (reverse("admin:billing_price_change", args=[price.pk]), ["$0.15", "$0.015", "$0.60"]),
        (reverse("admin:billing_poolcost_changelist"), ["$2.50"]),
        (reverse("admin:billing_poolcost_change", args=[cost.pk]), ["$2.50"]),
    ):
        content = operator.get(page).content.decode()
        assert [amount for amount in shown if amount not in content] == []
