"""Limits as pages: what is used of each now, and those of projects and keys made and changed."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import LimitScope, ScopedLimit, packed
from inference.admission.reservations import ReservationRequest, Reservations
from tenants.access.api_keys import issue_api_key
from tenants.access.projects import add_project
from tenants.alerts.balances import threshold_of
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import Quota, QuotaAlert, Tenant
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
_MINUTE_LIMITS = packed(
    [
        ScopedLimit(LimitScope.TIER, LimitName.REQUESTS_PER_MINUTE, 10**6),
        ScopedLimit(LimitScope.TIER, LimitName.TOKENS_PER_MINUTE, 10**9),
    ]
)


def form(houses: TwoTenants, **changes: str) -> dict[str, str]:
    return {
        "place": f"project:{houses.acme.project.id}",
        "limit": "tokens_per_month",
        "value": "2M",
        "enforced": "hard",
        "alert_percents": "50, 80, 100",
    } | changes


def use(url: str, houses: TwoTenants, *, tokens: int, nanos: int) -> None:
    """What a request of Acme's key reserves."""
    key = houses.acme.key

    async def reserve() -> None:
        async with AsyncRedis.from_url(url) as redis:
            reservations = Reservations(redis)
            request = ReservationRequest(
                key_id=str(key.id),
                project_id=str(key.project_id),
                tokens=tokens,
                nanos=nanos,
                pool="pool",
                prices=Prices(0, 0, 0, 1000),
            )
            await reservations.reserve(
                str(key.tenant_id), "request", request, _MINUTE_LIMITS, sequences=3
            )

    asyncio.run(reserve())


def used(rows: Any) -> dict[str, int | None]:
    return {row.limit.value: row.used for row in rows}


def quotas_of(houses: TwoTenants) -> set[tuple[str, str, int, bool]]:
    with operator_scope("test"):
        rows = Quota.objects.filter(tenant=houses.acme.tenant)
        return {(row.scope, row.limit, row.value, row.is_hard) for row in rows}


@pytest.mark.usefixtures("functions_loaded")
def test_every_limit_stands_there_with_what_is_used_of_it_now(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, dispatch_redis_url: str
) -> None:
    use(dispatch_redis_url, houses, tokens=400, nanos=250_000_000)
    answer = signed_in("viewer").get(f"{acme_address}limits")
    assert answer.status_code == 200
    assert used(answer.context["tier_rows"]) == {
        "requests_per_minute": 1,
        "concurrent_requests": 3,
    }
    (whole,) = answer.context["whole_rows"]
    assert (whole.limit, whole.used, whole.percent) == ("spend_per_month", 250_000_000, 25)
    (own,) = answer.context["page"].rows
    assert (own.limit, own.used, own.value, own.percent) == ("tokens_per_day", 400, 1000, 40)
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
    assert own.resets_at is not None
    assert abs(own.resets_at - datetime.combine(tomorrow, datetime.min.time(), UTC)) < timedelta(
        minutes=1
    )


@pytest.mark.usefixtures("functions_loaded")
def test_another_tenants_use_and_limits_are_not_told(
    signed_in: SignIn, houses: TwoTenants, dispatch_redis_url: str
) -> None:
    use(dispatch_redis_url, houses, tokens=400, nanos=1)
    client = signed_in("owner")
    client.force_login(houses.globex.people["owner"])
    answer = client.get(f"/t/{houses.globex.tenant.id}/limits")
    assert set(used(answer.context["tier_rows"]).values()) == {0}
    assert [row.quota for row in answer.context["page"].rows] == [houses.globex.quota]


def test_limits_are_shown_while_nobody_can_tell_their_use(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, empty_redis: Redis
) -> None:
    assert empty_redis.dbsize() == 0  # without functions too
    client = signed_in("owner")
    for page in ("limits", f"limits/{houses.acme.quota.id}", f"keys/{houses.acme.key.id}", ""):
        assert client.get(f"{acme_address}{page}").status_code == 200
    rows = client.get(f"{acme_address}limits").context["tier_rows"]
    assert set(used(rows).values()) == {None}


@pytest.mark.parametrize(
    ("fields", "quota"),
    [
        ({}, ("project", "tokens_per_month", 2_000_000, True)),
        (
            {"limit": "spend_per_month", "value": "$250", "enforced": "soft"},
            ("project", "spend_per_month", 250 * 10**9, False),
        ),
        (
            {"limit": "concurrent_requests", "value": "8", "alert_percents": ""},
            ("project", "concurrent_requests", 8, True),
        ),
    ],
)
def test_limits_and_budgets_are_made_in_peoples_units(
    fields: dict[str, str],
    quota: tuple[str, str, int, bool],
    signed_in: SignIn,
    houses: TwoTenants,
    acme_address: str,
) -> None:
    answer = signed_in("admin").post(f"{acme_address}limits/new", form(houses, **fields))
    assert (answer.status_code, answer["Location"]) == (302, f"{acme_address}limits")
    assert quota in quotas_of(houses)


def test_a_budget_is_of_a_key_too_and_of_money_alone(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, address = signed_in("admin"), f"{acme_address}limits/new-budget"
    key = f"key:{houses.acme.key.id}"
    assert client.get(address).context["form"]["limit"].value() == "spend_per_month"
    answer = client.post(address, form(houses, place=key))
    assert answer.status_code == 422 and "limit" in answer.context["form"].errors
    budget = form(houses, place=key, limit="spend_per_day", value="0.50")
    assert client.post(address, budget, headers=HTMX).status_code == 204
    assert ("key", "spend_per_day", 500_000_000, True) in quotas_of(houses)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"place": ""}, "place"),
        ({"place": "tenant"}, "place"),
        ({"place": "project:nothing"}, "place"),
        ({"limit": "balance"}, "limit"),
        ({"limit": ""}, "limit"),
        ({"limit": "tokens_per_day"}, "limit"),
        ({"value": ""}, "value"),
        ({"value": "0"}, "value"),
        ({"value": "-1"}, "value"),
        ({"value": "$5"}, "value"),
        ({"value": "10000000T"}, "value"),
        ({"limit": "spend_per_month", "value": "lots"}, "value"),
        ({"limit": "spend_per_month", "value": "0.0000000001"}, "value"),
        ({"enforced": "maybe"}, "enforced"),
        ({"alert_percents": "0"}, "alert_percents"),
        ({"alert_percents": "1 2 3 4 5 6 7 8 9 10 11"}, "alert_percents"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_nothing_is_limited(
    fields: dict[str, str], wrong: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    before = quotas_of(houses)
    answer = signed_in("owner").post(f"{acme_address}limits/new", form(houses, **fields))
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [wrong]
    assert quotas_of(houses) == before
    typed = fields.get("value", "2M")
    assert not typed or f'value="{typed}"' in answer.content.decode()


def test_nothing_of_another_tenant_is_limited(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, globex = signed_in("owner"), houses.globex
    for place in (f"project:{globex.project.id}", f"key:{globex.key.id}"):
        answer = client.post(f"{acme_address}limits/new", form(houses, place=place))
        assert answer.status_code == 422 and list(answer.context["form"].errors) == ["place"]
        assert CANARY not in answer.content.decode()
    for page in ("", "/remove"):
        address = f"{acme_address}limits/{globex.quota.id}{page}"
        assert client.get(address).status_code == 404
        assert client.post(address, form(houses)).status_code == 404
    with operator_scope("test"):
        assert Quota.objects.filter(id=globex.quota.id, value=1000).exists()


def test_what_was_agreed_for_the_whole_is_not_changed_here(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        whole = Quota.objects.get(tenant=houses.acme.tenant, project=None, api_key=None)
    for page in ("", "/remove"):
        address = f"{acme_address}limits/{whole.id}{page}"
        assert signed_in("owner").get(address).status_code == 404
        assert signed_in("owner").post(address, form(houses, value="9T")).status_code == 404


def test_a_limit_is_changed_and_removed_with_its_alerts(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, quota = signed_in("admin"), houses.acme.quota
    address = f"{acme_address}limits/{quota.id}"
    changed = {"value": "1.5k", "enforced": "soft", "alert_percents": "120 90"}
    assert client.post(address, changed).status_code == 302
    with operator_scope("test"):
        quota.refresh_from_db()
    assert (quota.value, quota.is_hard, quota.alert_percents) == (1500, False, [90, 120])
    assert 'value="1.5k"' in client.get(address).content.decode()
    assert client.get(f"{address}/remove").status_code == 200
    assert client.post(f"{address}/remove").status_code == 302
    with operator_scope("test"):
        assert not Quota.objects.filter(id=quota.id).exists()
        assert not QuotaAlert.objects.filter(tenant=houses.acme.tenant).exists()


def test_owners_budget_the_whole_organisation_beside_its_operator(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in("owner")
    with operator_scope("test"):
        (theirs,) = Quota.objects.filter(tenant=houses.acme.tenant, project=None, api_key=None)
    budget = form(houses, place="organisation", limit="spend_per_month", value="$250")
    assert client.post(f"{acme_address}limits/new-budget", budget).status_code == 302
    rows = client.get(f"{acme_address}limits").context["whole_rows"]
    assert [(row.value, row.is_members) for row in rows] == [
        (theirs.value, False), (250 * 10**9, True)
    ]  # fmt: skip
    own = rows[1].quota
    changed = form(houses, value="$300")
    assert client.post(f"{acme_address}limits/{own.id}", changed).status_code == 302
    for page in (f"{theirs.id}", f"{theirs.id}/remove"):
        assert client.get(f"{acme_address}limits/{page}").status_code == 404
        assert client.post(f"{acme_address}limits/{page}", changed).status_code == 404
    assert client.post(f"{acme_address}limits/{own.id}/remove").status_code == 302
    with operator_scope("test"):
        assert list(Quota.objects.filter(tenant=houses.acme.tenant, project=None,
                                         api_key=None)) == [theirs]  # fmt: skip


@pytest.mark.parametrize("role", ["developer", "billing", "viewer"])
def test_who_may_not_set_limits_sees_them_and_who_may(
    role: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, quota = signed_in(role), houses.acme.quota
    answer = client.get(f"{acme_address}limits")
    assert answer.status_code == 200
    assert [str(role) for role in answer.context["writers"]] == ["owner", "admin"]
    assert "limits/new" not in answer.content.decode()
    for page in ("new", "new-budget", f"{quota.id}", f"{quota.id}/remove"):
        assert client.get(f"{acme_address}limits/{page}").status_code == 403
        assert client.post(f"{acme_address}limits/{page}", form(houses)).status_code == 403


def test_a_suspended_tenants_limits_stay_as_they_are(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    client = signed_in("owner")
    assert client.get(f"{acme_address}limits").status_code == 200
    for page in ("new", f"{houses.acme.quota.id}", f"{houses.acme.quota.id}/remove"):
        answer = client.post(f"{acme_address}limits/{page}", form(houses))
        assert answer.status_code == 403
        assert answer.context["refusal"].code == "tenant_suspended"


def test_the_list_is_narrowed_by_kind_and_project(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    tenant = houses.acme.tenant
    with operator_scope("test"):
        web = add_project(tenant, name="web")
        Quota.objects.create(tenant=tenant, project=web, limit="spend_per_day", value=1)
        key = issue_api_key(web).record
        Quota.objects.create(tenant=tenant, api_key=key, limit="requests_per_minute", value=1)
    client, address = signed_in("viewer"), f"{acme_address}limits"
    for query, limits in (
        ({}, {"tokens_per_day", "spend_per_day", "requests_per_minute"}),
        ({"kind": "budget"}, {"spend_per_day"}),
        ({"kind": "tokens"}, {"tokens_per_day"}),
        ({"project": str(web.id)}, {"spend_per_day", "requests_per_minute"}),
        ({"kind": "rate", "project": str(web.id)}, {"requests_per_minute"}),
    ):
        found = set(used(client.get(address, query).context["page"].rows))
        assert found == limits, query
    # Another tenant's project is no choice, and narrows nothing.
    theirs = client.get(address, {"project": str(houses.globex.project.id)})
    assert len(theirs.context["page"].rows) == 3 and CANARY not in theirs.content.decode()


def prepaid(tenant: Tenant) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(id=tenant.id).update(billing_mode="prepaid")


def test_a_low_balance_is_told_when_people_say(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    prepaid(houses.acme.tenant)
    client, address = signed_in("admin"), f"{acme_address}limits/balance-alert"
    for typed, nanos in (("$12.50", 12_500_000_000), ("0", 0), ("", None)):
        assert client.post(address, {"threshold_nanos": typed}).status_code == 302
        with tenant_scope(houses.acme.tenant.id):
            assert threshold_of(houses.acme.tenant).threshold_nanos == nanos
    wrong = client.post(address, {"threshold_nanos": "-3"})
    assert wrong.status_code == 422 and list(wrong.context["form"].errors) == ["threshold_nanos"]


def test_who_may_not_see_the_balance_sees_neither_it_nor_its_alert(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    prepaid(houses.acme.tenant)
    for role, sees, changes in (
        ("owner", True, True),
        ("billing", True, False),
        ("developer", False, False),
        ("viewer", False, False),
    ):
        client = signed_in(role)
        assert bool(client.get(f"{acme_address}limits").context["balance"]) is sees
        address = f"{acme_address}limits/balance-alert"
        assert client.get(address).status_code == (200 if sees else 403)
        answer = client.post(address, {"threshold_nanos": "1"})
        assert answer.status_code == (302 if changes else 403)
