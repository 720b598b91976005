"""Operators add prices; what a price names stays."""

import pytest
from django.forms import model_to_dict
from django.test import Client
from django.urls import reverse

from tenants.billing.models import Price
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    Tier,
)
from tests.control_plane.operator_site.records import wrong_fields

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("one_of_each")
def test_a_price_is_added_and_never_changed(operator: Client) -> None:
    with operator_scope("test"):
        price = Price.objects.get()
    change = reverse("admin:billing_price_change", args=[price.pk])
    assert operator.post(change, {"model": "other"}).status_code == 403
    delete = reverse("admin:billing_price_delete", args=[price.pk])
    assert operator.post(delete, {"post": "yes"}).status_code == 403
    fields = ("prompt", "cached", "completion")
    form = {f"{field}_micros_per_million_tokens": "7" for field in fields}
    form |= {"model": "demo", "batch_discount_permille": "0"}
    add = reverse("admin:billing_price_add")
    assert wrong_fields(operator, add, form | {"tier": "nonesuch"}) == {"tier"}
    assert operator.post(add, form).status_code == 302
    with operator_scope("test"):
        assert [each.prompt for each in Price.objects.in_policy()["demo"]] == [1, 7]


@pytest.mark.usefixtures("acme")
def test_a_tier_that_a_price_names_cannot_be_renamed_or_deleted(operator: Client) -> None:
    tier = Tier.objects.get(name="batch")
    micros = [f"{kind}_micros_per_million_tokens" for kind in ("prompt", "cached", "completion")]
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
