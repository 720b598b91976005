"""Operators look at adapters, point their traffic and end them, by the verbs that the API has."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import keys
from inference.adapters.versions import begin_validation, mark_refused
from inference.models import Adapter, AdapterVersion
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, Project
from tests.control_plane.operator_site.records import refusals, somebody_who_may
from tests.support.adapters.records import a_ready_version, an_adapter, an_upload

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def adapter(acme: Project) -> Adapter:
    """Three versions: two that are ready, of which the first answers, and one that was refused."""
    with operator_scope("test"):
        made = an_adapter(acme.tenant)
        a_ready_version(made)
        a_ready_version(made)
        mark_refused(begin_validation(an_upload(made)), "rank", f"Its rank is 99. {SCRIPT}")
        return made


def listing(name: str) -> str:
    return reverse(f"admin:inference_{name}_changelist")


def page(record: Adapter | AdapterVersion, action: str = "change") -> str:
    return reverse(f"admin:inference_{record._meta.model_name}_{action}", args=[record.pk])


def version(adapter: Adapter, number: int) -> AdapterVersion:
    with operator_scope("test"):
        return adapter.versions.get(number=number)


def shares(adapter: Adapter) -> list[dict[str, int]]:
    with operator_scope("test"):
        return Adapter.objects.get(pk=adapter.pk).shares


def actions_of(client: Client, record: Adapter | AdapterVersion) -> set[str]:
    """What the record's page offers to do with it."""
    address = page(record)
    html = client.get(address).content.decode()
    names = ("point", "promote", "archive", "end")
    return {name for name in names if f"{address.removesuffix('change/')}{name}" in html}


def test_lists_are_searched_by_the_name_that_requests_have(
    operator: Client, adapter: Adapter
) -> None:
    second = version(adapter, 2)
    for term in ("acme/support", "acme/", "support", "acme/support@2"):
        answer = operator.get(listing("adapter"), {"q": term})
        assert answer.context["cl"].result_count == 1, term
    none = operator.get(listing("adapter"), {"q": "globex/s"})
    assert none.context["cl"].result_count == 0
    found = {
        "acme/support@2": {2},
        "acme/support": {1, 2, 3},
        "rank": {3},
        second.opaque_name: {2},
        second.digest[:16]: {2},
        "acme/support@" + "9" * 30: {1, 2, 3},
    }
    for term, numbers in found.items():
        answer = operator.get(listing("adapterversion"), {"q": term})
        assert {each.number for each in answer.context["cl"].result_list} == numbers, term


@pytest.mark.parametrize(
    ("name", "query", "count"),
    [
        ("adapter", {"state": "active"}, 1),
        ("adapter", {"state": "archived"}, 0),
        ("adapter", {"model": "base-model"}, 1),
        ("adapter", {"model": "other"}, 0),
        ("adapterversion", {"state__exact": "refused"}, 1),
        ("adapterversion", {"model": "base-model"}, 3),
    ],
)
def test_lists_are_narrowed(
    operator: Client, adapter: Adapter, name: str, query: dict[str, str], count: int
) -> None:
    answer = operator.get(listing(name), query)
    assert answer.status_code == 200
    assert answer.context["cl"].result_count == count


def test_a_list_of_many_asks_as_often_as_one_of_few(
    operator: Client, acme: Project, adapter: Adapter
) -> None:
    def asked(name: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert operator.get(listing(name)).status_code == 200
        return len(queries)

    names = ("adapter", "adapterversion")
    [asked(name) for name in names]
    few = [asked(name) for name in names]
    with operator_scope("test"):
        for number in range(8):
            a_ready_version(an_adapter(acme.tenant, f"voice-{number}"))
    assert [asked(name) for name in names] == few


def test_an_adapters_page_shows_versions_refusals_traffic_and_holders(
    operator: Client, adapter: Adapter, dispatch_redis_url: str, settings: Settings
) -> None:
    first = version(adapter, 1)
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        redis.zadd(keys.pool_adapter_workers("pool-a", first.opaque_name), {"w1": 3, "w2": 1})
    html = operator.get(page(adapter)).content.decode()
    assert "1 in a slot, 1 on disk" in html and "live" in html
    assert "Its rank is 99." in html and SCRIPT not in html
    html = operator.get(page(first)).content.decode()
    assert "1 in a slot, 1 on disk" in html
    settings.PENSTOCK_DISPATCH_REDIS_URL = "redis://127.0.0.1:1/0"
    for record in (adapter, first):
        answer = operator.get(page(record))
        assert answer.status_code == 200
        assert "unknown" in answer.content.decode()


def test_an_operator_promotes_splits_and_rolls_back(operator: Client, adapter: Adapter) -> None:
    promote = page(version(adapter, 2), "promote_one")
    assert operator.get(promote).status_code == 200
    assert shares(adapter) == [{"version": 1, "permille": 1000}]
    operator.post(promote, {"sure": "yes"})
    assert shares(adapter) == [{"version": 2, "permille": 1000}]
    split = {"sure": "yes", "main": "2", "canary": "1", "share": "0.5"}
    operator.post(page(adapter, "point_one"), split)
    assert shares(adapter) == [{"version": 2, "permille": 995}, {"version": 1, "permille": 5}]
    operator.post(page(adapter, "point_one"), {"sure": "yes", "main": "1"})
    assert shares(adapter) == [{"version": 1, "permille": 1000}]
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.filter(verb="pointed").latest("sequence")
    assert (event.actor_kind, event.record_id) == ("user", str(adapter.pk))


@pytest.mark.parametrize(
    "form",
    [
        {"main": "3"},
        {"main": "x"},
        {},
        {"main": "1", "canary": "2"},
        {"main": "1", "share": "10"},
        {"main": "1", "canary": "1", "share": "10"},
        {"main": "1", "canary": "2", "share": "100"},
        {"main": "1", "canary": "2", "share": "0"},
        {"main": "1", "canary": "3", "share": "10"},
    ],
)
def test_traffic_that_makes_no_sense_is_refused(
    operator: Client, adapter: Adapter, form: dict[str, str]
) -> None:
    answer = operator.post(page(adapter, "point_one"), {"sure": "yes", **form})
    assert answer.status_code == 200 and answer.context["form"].errors
    assert shares(adapter) == [{"version": 1, "permille": 1000}]


def test_what_has_traffic_is_not_ended_and_the_page_says_why(
    operator: Client, adapter: Adapter
) -> None:
    first = version(adapter, 1)
    archive = {"sure": "yes"}
    assert refusals(operator.post(page(first, "archive_one"), archive, follow=True))
    delete = {"sure": "yes", "name": "acme/support@1"}
    assert refusals(operator.post(page(first, "delete_one"), delete, follow=True))
    assert version(adapter, 1).state == "ready"
    assert actions_of(operator, first) == set()


def test_versions_and_adapters_end_after_their_name_was_typed(
    operator: Client, adapter: Adapter
) -> None:
    second = version(adapter, 2)
    assert actions_of(operator, second) == {"promote", "archive", "end"}
    operator.post(page(second, "archive_one"), {"sure": "yes"})
    assert version(adapter, 2).state == "archived"
    for name in ("", "acme/support", "acme/support@1"):
        answer = operator.post(page(second, "delete_one"), {"sure": "yes", "name": name})
        assert answer.context["form"].errors
    operator.post(page(second, "delete_one"), {"sure": "yes", "name": "acme/support@2"})
    assert version(adapter, 2).delete_at is not None
    operator.post(page(adapter, "delete_one"), {"sure": "yes", "name": "acme/support"})
    assert shares(adapter) == []
    assert version(adapter, 1).state == "archived"
    assert actions_of(operator, adapter) == set()


def test_an_adapter_is_deleted_while_a_version_of_it_waits(
    operator: Client, adapter: Adapter
) -> None:
    with operator_scope("test"):
        an_upload(adapter)
    operator.post(page(adapter, "delete_one"), {"sure": "yes", "name": "acme/support"})
    assert shares(adapter) == []
    assert version(adapter, 1).state == "archived"


def test_nobody_edits_adds_or_removes_a_record_by_hand(operator: Client, adapter: Adapter) -> None:
    for record in (adapter, version(adapter, 1)):
        assert operator.post(page(record), {"slug": "mine", "state": "ready"}).status_code == 403
        assert operator.post(page(record, "delete"), {"post": "yes"}).status_code == 403
        assert (
            operator.get(
                reverse(f"admin:{record._meta.label_lower.replace('.', '_')}_add")
            ).status_code
            == 403
        )


def test_who_may_only_look_changes_nothing(client: Client, adapter: Adapter) -> None:
    client.force_login(somebody_who_may("view_adapter", "view_adapterversion"))
    assert actions_of(client, adapter) == set()
    second = version(adapter, 2)
    for address, form in (
        (page(adapter, "point_one"), {"main": "2"}),
        (page(adapter, "delete_one"), {"name": "acme/support"}),
        (page(second, "promote_one"), {}),
        (page(second, "archive_one"), {}),
        (page(second, "delete_one"), {"name": "acme/support@2"}),
    ):
        answer = client.post(address, {"sure": "yes", **form})
        assert answer.status_code in (302, 403)
    assert shares(adapter) == [{"version": 1, "permille": 1000}]
    assert {version(adapter, number).state for number in (1, 2)} == {"ready"}


@pytest.mark.parametrize("name", ["adapter", "adapterversion"])
def test_an_address_of_nothing_is_no_error(operator: Client, name: str) -> None:
    for key in ("nothing", "0" * 32, "1", "a/b"):
        answer = operator.get(reverse(f"admin:inference_{name}_change", args=[key]))
        assert answer.status_code in (302, 404), key
        ends = reverse(f"admin:inference_{name}_delete_one", args=[key])
        assert operator.post(ends, {"sure": "yes"}).status_code in (302, 404), key
