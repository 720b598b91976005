"""What operators list on the command line."""

import io

import pytest
from django.core.management import call_command
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import WorkerState
from inference.models import Pool, ServedModel
from tenants.access.api_keys import issue_api_key, revoke_api_key
from tenants.billing.models import Price
from tenants.billing.pricing.price_book import end, enter
from tenants.models import Membership, Project, Tenant, User
from tests.support.commands import refused, run
from tests.support.fleet import write_worker
from tests.support.projects import make_project

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]


@pytest.fixture
def acme() -> Project:
    return make_project("Acme", "premium")


def test_tenants_are_listed_by_state_and_tier(acme: Project) -> None:
    other = make_project("Beta", "free").tenant
    Tenant.objects.filter(id=other.id).update(is_suspended=True)
    assert [(row["name"], row["state"]) for row in run("list_tenants")] == [
        ("Acme", "open"),
        ("Beta", "suspended"),
    ]
    assert [row["name"] for row in run("list_tenants", "--state", "suspended")] == ["Beta"]
    (row,) = run("list_tenants", "--tier", "premium")
    assert row["tenant_id"] == str(acme.tenant_id) and row["tier"] == "premium"
    assert run("list_tenants", "--state", "closed") == []
    assert [row["name"] for row in run("list_tenants", "--search", "bet")] == ["Beta"]
    assert "'gold'" in refused("list_tenants", "--tier", "gold")


def test_a_tenants_projects_members_and_quotas_are_listed(acme: Project) -> None:
    key = issue_api_key(acme).record
    revoke_api_key(issue_api_key(acme).record)
    (project,) = run("list_projects", "acme")
    assert run("list_projects", "acme", "--search", "none") == []
    assert (project["project_id"], project["api_keys"]) == (str(acme.id), 1)

    alice = User.objects.create_user("alice@acme.example")
    Membership.objects.create(tenant=acme.tenant, user=alice, role="owner")
    (member,) = run("list_members", "Acme", "--role", "owner")
    assert run("list_members", "Acme", "--role", "viewer") == []
    assert (member["email"], member["role"]) == ("alice@acme.example", "owner")

    run("set_quota", "Acme", "spend_per_month", "12.50", "--api-key", key.public_id)
    (quota,) = run("list_quotas", "Acme")
    assert (quota["scope"], quota["api_key"], quota["value"]) == (
        "key",
        key.public_id,
        12_500_000_000,
    )
    assert run("list_quotas", "Acme", "--limit", "spend_per_month", "--project", acme.name)
    assert run("list_quotas", "Acme", "--limit", "tokens_per_day") == []
    states = [len(run("list_api_keys", "acme", "--state", each)) for each in ("active", "revoked")]
    assert states == [1, 1]
    shown = run("show_tenant", "acme")
    assert (shown["state"], shown["tier"], shown["credit"]) == ("open", "premium", "$0.00")
    counts = [shown[each] for each in ("members", "projects", "api_keys", "quotas")]
    assert counts == [1, 1, 1, 1]
    out = io.StringIO()
    call_command("list_quotas", "Acme", stdout=out)
    assert "$12.50" in out.getvalue() and "operator" in out.getvalue()
    for command in ("list_projects", "list_members", "list_quotas"):
        assert "'Nobody'" in refused(command, "Nobody")


def test_tiers_are_listed_with_their_tenants(acme: Project) -> None:
    rows = {row["name"]: row["tenants"] for row in run("list_tiers")}
    assert rows["premium"] == 1
    assert set(rows) >= {"free", "standard", "premium", "batch"}


def test_models_are_listed_with_whom_they_are_for(acme: Project) -> None:
    pool = Pool.objects.create(name="gpu")
    for_acme = ServedModel.objects.create(name="org/law", pool=pool, context_tokens=4096)
    for_acme.tenants.add(acme.tenant)
    ServedModel.objects.create(name="org/open", pool=pool, context_tokens=4096, is_enabled=False)
    rows = {row["name"]: row for row in run("list_served_models")}
    assert (rows["org/law"]["tenants"], rows["org/open"]["tenants"]) == ("Acme", "all")
    assert rows["org/open"]["is_enabled"] is False


def test_prices_that_hold_are_listed_and_on_demand_the_others() -> None:
    price = {
        "prompt_micros_per_million_tokens": 1,
        "cached_micros_per_million_tokens": 1,
        "completion_micros_per_million_tokens": 2,
    }
    enter(Price(model="a", **price))
    gone = enter(Price(model="b", **price))
    end(gone)
    assert [row["model"] for row in run("list_prices")] == ["a"]
    assert [row["model"] for row in run("list_prices", "--all")] == ["a", "b"]
    assert run("list_prices", "--model", "b") == []


def test_workers_are_listed_with_what_they_hold(
    settings: Settings, dispatch_redis_url: str
) -> None:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        write_worker(redis, "listed-a")
        write_worker(redis, "listed-b", state=WorkerState.DRAINING, problem="asked to leave")
        redis.zadd(keys.pool_heartbeats("listed-a"), {"listed-a-worker#1": 0})
    rows = [
        (row["name"], row["state"], row["running"], row["problem"])
        for row in run("list_workers")
        if row["pool"].startswith("listed-")  # others are of the tests before
    ]
    assert rows == [
        ("listed-a-worker", "lost", 3, ""),
        ("listed-b-worker", "draining", 3, "asked to leave"),
    ]
    assert [row["pool"] for row in run("list_workers", "--pool", "listed-b")] == ["listed-b"]
    shown = run("show_worker", "listed-b-worker")
    assert (shown["pool"], shown["state"], shown["running"]) == ("listed-b", "draining", 3)
    assert "'nobody'" in refused("show_worker", "nobody")


def test_an_empty_list_says_so() -> None:
    out = io.StringIO()
    call_command("list_tenants", stdout=out)
    assert out.getvalue() == "No tenants.\n"
