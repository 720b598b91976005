"""manage.py adapters: what operators see of adapters, and do to them."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries, Settings
from redis import Redis

from gpu_workers.protocol import keys
from inference.adapters.versions import begin_validation, mark_refused
from inference.models import Adapter, AdapterVersion
from tenants.models import Project, Tier
from tests.support.adapters.records import a_ready_version, an_adapter, an_upload
from tests.support.commands import attempt, refused, run
from tests.support.projects import make_project
from tests.support.refusals import raises_conflict, raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
NAME = "acme/support"


@pytest.fixture
def acme() -> Project:
    return make_project("Acme", "premium")


@pytest.fixture
def adapter(acme: Project) -> Adapter:
    """Two versions that are ready, of 1000 bytes each; the first answers."""
    made = an_adapter(acme.tenant)
    a_ready_version(made)
    a_ready_version(made)
    return made


def shares(adapter: Adapter) -> list[dict[str, int]]:
    return Adapter.objects.get(pk=adapter.pk).shares


def test_adapters_are_listed_with_what_answers_and_what_they_take(adapter: Adapter) -> None:
    theirs = an_adapter(make_project("Globex", "standard").tenant)
    mark_refused(begin_validation(an_upload(theirs)), "rank", "Too large.")
    rows = [
        (row["name"], row["traffic"], row["versions"], row["stored_bytes"])
        for row in run("adapters", "list")
    ]
    assert rows == [(NAME, "1", 2, 2000), ("globex/support", "", 1, 0)]
    assert [row["name"] for row in run("adapters", "list", "--tenant", "Globex")] == [theirs.name]
    assert run("adapters", "list", "--archived") == []


def test_one_is_shown_with_its_versions_and_their_workers(
    adapter: Adapter, redis: Redis, settings: Settings
) -> None:
    mark_refused(begin_validation(an_upload(adapter)), "rank", "Its rank is 99.")
    first = adapter.versions.get(number=1)
    redis.zadd(keys.pool_adapter_workers("pool-a", first.opaque_name), {"w1": 3, "w2": 1})
    facts = run("adapters", "show", NAME)
    assert (facts["name"], facts["tenant"], facts["traffic"]) == (NAME, "Acme", "1")
    versions = [
        (row["version"], row["state"], row["workers"], row["permille"], row["refusal_code"])
        for row in facts["versions"]
    ]
    assert versions == [
        (f"{NAME}@3", "refused", 0, 0, "rank"),
        (f"{NAME}@2", "ready", 0, 0, None),
        (f"{NAME}@1", "live", 2, 1000, None),
    ]
    settings.PENSTOCK_DISPATCH_REDIS_URL = "redis://127.0.0.1:1/0"
    rows = run("adapters", "show", NAME)["versions"]
    assert [(row["state"], row["workers"]) for row in rows[1:]] == [("ready", None)] * 2


def test_traffic_is_pointed_at_one_version_or_at_two_and_back(adapter: Adapter) -> None:
    facts = run("adapters", "point", NAME, "2")
    assert (facts["traffic_before"], facts["traffic"]) == ("1", "2")
    assert shares(adapter) == [{"version": 2, "permille": 1000}]
    run("adapters", "point", NAME, "1:100", "2:900")
    assert shares(adapter) == [{"version": 2, "permille": 900}, {"version": 1, "permille": 100}]
    assert run("adapters", "point", NAME, "1")["traffic_before"] == "2:900 1:100"


@pytest.mark.parametrize(
    "words", [[], ["x"], ["1", "2"], ["1:900", "1:100"], ["-1"], ["1:900:1"], ["9" * 10], ["²"]]
)
def test_shares_that_make_no_sense_are_refused(adapter: Adapter, words: list[str]) -> None:
    refused("adapters", "point", NAME, *words)
    assert shares(adapter) == [{"version": 1, "permille": 1000}]


def test_what_the_api_refuses_is_refused_here(adapter: Adapter) -> None:
    with raises_invalid("traffic_is_not_whole", "traffic"):
        attempt("adapters", "point", NAME, "1:900", "2:200")
    with raises_invalid("traffic_is_not_whole", "traffic"):
        attempt("adapters", "point", NAME, "1:0", "2:1000")
    with raises_conflict("version_not_ready", "traffic"):
        attempt("adapters", "point", NAME, "7")
    with raises_conflict("version_has_traffic"):
        attempt("adapters", "archive", f"{NAME}@1", "--yes")
    with raises_conflict("version_has_traffic"):
        attempt("adapters", "delete", f"{NAME}@1", "--yes")
    assert {version.state for version in adapter.versions.all()} == {"ready"}


def test_what_is_for_good_is_asked_for_first(adapter: Adapter) -> None:
    for words in (["archive", f"{NAME}@2"], ["delete", f"{NAME}@2"], ["delete", NAME]):
        assert "--yes" in refused("adapters", *words)
    assert {version.state for version in adapter.versions.all()} == {"ready"}


def test_a_version_is_archived_and_deleted_and_then_the_adapter(adapter: Adapter) -> None:
    archived = run("adapters", "archive", f"{NAME}@2", "--yes")
    assert (archived["version"], archived["state"]) == (f"{NAME}@2", "archived")
    assert run("adapters", "delete", f"{NAME}@2", "--yes")["delete_at"]
    assert run("adapters", "delete", NAME, "--yes")["archived_at"]
    assert [version.state for version in AdapterVersion.objects.all()] == ["archived"] * 2
    assert [row["name"] for row in run("adapters", "list", "--archived")] == [NAME]


@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["list", NAME],
        ["show", "acme/other"],
        ["show", "support"],
        ["show", NAME, "2"],
        ["archive", NAME, "--yes"],
        ["archive", f"{NAME}@9", "--yes"],
        ["delete", f"{NAME}@x", "--yes"],
        ["delete", f"{NAME}@{'9' * 30}", "--yes"],
    ],
)
def test_what_names_nothing_is_refused(adapter: Adapter, words: list[str]) -> None:
    refused("adapters", *words)
    assert shares(adapter) == [{"version": 1, "permille": 1000}]


def test_listing_many_costs_what_listing_one_does(
    acme: Project, adapter: Adapter, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with CaptureQueriesContext(connection) as queries:
        run("adapters", "list")
    for number in range(8):
        a_ready_version(an_adapter(acme.tenant, f"voice-{number}"))
    with django_assert_num_queries(len(queries)):
        assert len(run("adapters", "list")) == 9


def test_one_is_pinned_as_the_tier_allows_and_unpinned(acme: Project, adapter: Adapter) -> None:
    Tier.objects.filter(pk=acme.tenant.tier_id).update(max_pinned_adapters=1)
    other = an_adapter(acme.tenant, slug="sales")
    assert run("adapters", "pin", NAME)["pinned_at"]
    with raises_conflict("too_many_pinned_adapters"):
        attempt("adapters", "pin", other.name)
    assert run("adapters", "unpin", NAME)["pinned_at"] is None
    assert run("adapters", "pin", other.name)["pinned_at"]
