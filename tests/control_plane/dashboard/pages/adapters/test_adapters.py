"""Adapters as pages: the list, one with its versions, which of them answer, and what ends them."""

import pytest
from django.test import Client
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import keys
from inference.adapters.lifecycle import archive_adapter, set_traffic_split
from inference.adapters.versions import begin_validation, mark_refused
from inference.models import Adapter, AdapterVersion
from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope
from tenants.models import Tier
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.adapters.records import a_ready_version, an_upload
from tests.support.two_tenants import CANARY, House, TwoTenants

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
SCRIPT = "<script>alert(1)</script>"


def adapter_of(house: House) -> Adapter:
    with operator_scope("test"):
        found = Adapter.objects.select_related("tenant", "model")
        return found.get(pk=house.adapter_version.adapter_id)


def versions_of(house: House) -> list[AdapterVersion]:
    """The oldest first."""
    with operator_scope("test"):
        adapter = house.adapter_version.adapter_id
        found = AdapterVersion.objects.select_related("adapter__tenant").filter(adapter=adapter)
        return list(found.order_by("number"))


@pytest.fixture
def one(houses: TwoTenants, acme_address: str) -> str:
    return f"{acme_address}adapters/{houses.acme.adapter_version.adapter_id}"


@pytest.fixture
def alice(signed_in: SignIn) -> Client:
    return signed_in("developer")


def test_the_list_has_what_answers_and_nothing_of_others(
    signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("viewer").get(f"{acme_address}adapters")
    html = answer.content.decode()
    assert "acme/acme-adapter" in html and "version 1" in html
    assert CANARY not in html
    assert not answer.context["may_write"]
    (row,) = answer.context["rows"]
    assert (row.count, row.newest.number, row.shares[0].number) == (2, 2, 1)


def test_the_list_says_what_is_stored_and_what_may_be(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    viewer = signed_in("viewer")
    for adapters, uploads in (
        viewer.get(f"{acme_address}adapters").context["storage"],
        viewer.get(acme_address).context["now"]["storage"],
    ):
        # Two versions of 1000 bytes; an upload of five that nothing has come of.
        assert (adapters.used, adapters.kept.stored_bytes) == (2_000, 2_000)
        assert (uploads.used, uploads.kept.stored_bytes) == (5, 0)
        tier = houses.acme.tenant.tier
        assert [row.value for row in (adapters, uploads)] == [tier.max_adapter_bytes] * 2
        assert (adapters.percent, adapters.kind) == (0, "good")


def test_an_empty_list_says_the_first_step_to_whoever_may_take_it(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        archive_adapter(adapter_of(houses.acme))
    new = f"{acme_address}adapters/new"
    assert new in signed_in("developer").get(f"{acme_address}adapters").content.decode()
    assert new not in signed_in("viewer").get(f"{acme_address}adapters").content.decode()
    archived = signed_in("viewer").get(f"{acme_address}adapters?state=archived")
    assert [row.adapter.slug for row in archived.context["rows"]] == ["acme-adapter"]


def test_an_adapter_shows_its_versions_and_how_a_request_names_it(alice: Client, one: str) -> None:
    answer = alice.get(one)
    html = answer.content.decode()
    assert [row.version.number for row in answer.context["rows"]] == [2, 1]
    assert [int(row.percent) for row in answer.context["rows"]] == [0, 100]
    assert "&quot;model&quot;: &quot;acme/acme-adapter&quot;" in html
    assert "acme/acme-adapter@1" in html
    fragment = alice.get(one, headers=HTMX).content.decode()
    assert "<html" not in fragment and 'id="list"' in fragment


def test_a_version_that_workers_hold_is_live(
    alice: Client, one: str, houses: TwoTenants, dispatch_redis_url: str
) -> None:
    adapter, (first, _) = adapter_of(houses.acme), versions_of(houses.acme)
    key = keys.pool_adapter_workers(adapter.model.pool_id, first.opaque_name)
    with Redis.from_url(dispatch_redis_url) as redis:
        # The third has none of it yet.
        redis.zadd(key, {"worker-1": 3, "worker-2": 1, "worker-3": 0})
    held = {row.version.number: row.holders for row in alice.get(one).context["rows"]}
    assert held == {1: 2, 2: 0}
    assert alice.get(f"{one}/versions/{first.pk}").context["row"].holders == 2


def test_without_redis_the_page_says_what_is_on_record(
    alice: Client, one: str, settings: Settings
) -> None:
    settings.PENSTOCK_DISPATCH_REDIS_URL = "redis://127.0.0.1:1/0"
    answer = alice.get(one)
    assert answer.status_code == 200
    assert [row.holders for row in answer.context["rows"]] == [None, None]


def test_a_refused_version_says_why_without_running_it(
    alice: Client, one: str, houses: TwoTenants
) -> None:
    with operator_scope("test"):
        version = begin_validation(an_upload(adapter_of(houses.acme)))
        mark_refused(version, "rank", f"Its rank is 99. {SCRIPT}")
    for address in (one, f"{one}/versions/{version.pk}"):
        html = alice.get(address).content.decode()
        assert "Its rank is 99." in html and SCRIPT not in html
    answer = alice.post(f"{one}/versions/{version.pk}/promote")
    assert answer.status_code == 302
    assert adapter_of(houses.acme).main == 1


def test_while_a_version_is_looked_at_the_page_asks_again(
    alice: Client, one: str, houses: TwoTenants
) -> None:
    assert not alice.get(one).context["is_in_progress"]
    with operator_scope("test"):
        version = begin_validation(an_upload(adapter_of(houses.acme)))
    assert alice.get(one).context["is_in_progress"]
    assert "data-polls" in alice.get(f"{one}/versions/{version.pk}").content.decode()


def test_promote_and_roll_back_are_one_step_each(
    alice: Client, one: str, houses: TwoTenants
) -> None:
    first, second = versions_of(houses.acme)
    answer = alice.post(f"{one}/versions/{second.pk}/promote")
    assert (answer.status_code, answer["Location"]) == (302, one)
    assert adapter_of(houses.acme).shares == [{"version": 2, "permille": 1000}]
    back = alice.get(one).context["before"]
    assert back == first
    alice.post(f"{one}/versions/{back.pk}/promote")
    assert adapter_of(houses.acme).shares == [{"version": 1, "permille": 1000}]


def test_a_canary_gets_its_share_and_is_taken_back(
    alice: Client, one: str, houses: TwoTenants
) -> None:
    fields = {"answers": "two", "main": "1", "canary": "2", "percent": "12.5"}
    answer = alice.post(f"{one}/traffic", fields)
    assert (answer.status_code, answer["Location"]) == (302, one)
    assert adapter_of(houses.acme).shares == [
        {"version": 1, "permille": 875},
        {"version": 2, "permille": 125},
    ]
    shown = alice.get(one)
    assert "12.5" in shown.content.decode()
    assert shown.context["before"].number == 1
    assert alice.get(f"{one}/traffic").context["form"].initial["canary"] == 2
    # What was asked for before is hidden then, and no matter.
    alice.post(f"{one}/traffic", {"answers": "one", "main": "2", "canary": "2", "percent": "x"})
    assert adapter_of(houses.acme).shares == [{"version": 2, "permille": 1000}]


def test_an_adapter_is_pinned_as_the_tier_allows(
    alice: Client, one: str, houses: TwoTenants
) -> None:
    answer = alice.post(f"{one}/pin")
    assert (answer.status_code, answer["Location"]) == (302, one)
    assert alice.get(one).context["is_pin_honoured"]
    with operator_scope("test"):
        Tier.objects.update(max_pinned_adapters=0)
    lowered = alice.get(one)
    assert not lowered.context["is_pin_honoured"]
    assert f"{one}/unpin" in lowered.content.decode()
    alice.post(f"{one}/unpin")
    assert adapter_of(houses.acme).pinned_at is None
    assert f"{one}/pin" not in alice.get(one).content.decode()
    alice.post(f"{one}/pin")
    assert adapter_of(houses.acme).pinned_at is None


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({}, "answers"),
        ({"answers": "one", "main": "3"}, "main"),
        ({"answers": "one", "main": "-1"}, "main"),
        ({"answers": "two", "main": "1"}, "canary"),
        ({"answers": "two", "main": "1", "canary": "1", "percent": "10"}, "canary"),
        ({"answers": "two", "main": "1", "canary": "99", "percent": "10"}, "canary"),
        ({"answers": "two", "main": "1", "canary": "2"}, "percent"),
        ({"answers": "two", "main": "1", "canary": "2", "percent": "0"}, "percent"),
        ({"answers": "two", "main": "1", "canary": "2", "percent": "100"}, "percent"),
        ({"answers": "two", "main": "1", "canary": "2", "percent": "NaN"}, "percent"),
        ({"answers": "two", "main": "1", "canary": "2", "percent": "0.05"}, "percent"),
    ],
)
def test_traffic_that_is_not_whole_is_refused_at_its_field(
    fields: dict[str, str], wrong: str, alice: Client, one: str, houses: TwoTenants
) -> None:
    answer = alice.post(f"{one}/traffic", fields)
    assert answer.status_code == 422
    assert wrong in answer.context["form"].errors
    assert adapter_of(houses.acme).shares == [{"version": 1, "permille": 1000}]


def test_a_version_ends_once_its_name_is_typed_and_no_traffic_points_at_it(
    alice: Client, one: str, houses: TwoTenants
) -> None:
    first, second = versions_of(houses.acme)
    archive = f"{one}/versions/{second.pk}/archive"
    assert alice.post(archive, {"confirm_name": "acme/acme-adapter@1"}).status_code == 422
    assert alice.post(archive, {"confirm_name": str(second)}).status_code == 302
    refused = alice.post(f"{one}/versions/{first.pk}/delete", {"confirm_name": str(first)})
    assert refused.status_code == 422
    assert refused.context["form"].non_field_errors()
    assert [version.state for version in versions_of(houses.acme)] == ["ready", "archived"]
    deleted = alice.post(f"{one}/versions/{second.pk}/delete", {"confirm_name": str(second)})
    assert deleted.status_code == 302
    assert versions_of(houses.acme)[1].delete_at is not None


def test_deleting_an_adapter_tells_what_goes_with_it(
    alice: Client, one: str, acme_address: str, houses: TwoTenants
) -> None:
    with operator_scope("test"):
        issue_api_key(houses.acme.project, allowed_adapters=["acme/acme-adapter"])
    asked = alice.get(f"{one}/delete")
    assert (asked.context["count"], asked.context["key_count"]) == (2, 1)
    assert alice.post(f"{one}/delete", {"confirm_name": "acme"}).status_code == 422
    answer = alice.post(f"{one}/delete", {"confirm_name": "acme/acme-adapter"})
    assert (answer.status_code, answer["Location"]) == (302, f"{acme_address}adapters")
    assert adapter_of(houses.acme).archived_at is not None
    assert alice.get(one).status_code == 200


def test_a_version_that_waits_for_a_worker_says_so_and_can_be_deleted(
    alice: Client, one: str, houses: TwoTenants, empty_redis: Redis
) -> None:
    with operator_scope("test"):
        version = an_upload(adapter_of(houses.acme))
    address = f"{one}/versions/{version.pk}"
    shown = alice.get(address).content.decode()
    assert f"once a worker of {houses.acme.model.name} runs" in shown
    assert f'href="{address}/delete"' in shown
    asked = alice.get(f"{address}/delete").content.decode()
    assert "has not been validated" in asked
    done = alice.post(f"{address}/delete", {"confirm_name": str(version)})
    assert done.status_code == 302
    with operator_scope("test"):
        version.refresh_from_db()
    assert (version.state, version.refusal_code) == ("refused", "withdrawn")


def test_an_adapter_is_deleted_while_a_version_of_it_is_validated(
    alice: Client, one: str, houses: TwoTenants
) -> None:
    with operator_scope("test"):
        an_upload(adapter_of(houses.acme))
    answer = alice.post(f"{one}/delete", {"confirm_name": "acme/acme-adapter"})
    assert answer.status_code == 302
    assert adapter_of(houses.acme).archived_at is not None


def test_who_may_not_sees_who_may(signed_in: SignIn, one: str, houses: TwoTenants) -> None:
    viewer, (_, second) = signed_in("viewer"), versions_of(houses.acme)
    assert not viewer.get(one).context["may_write"]
    for address in (f"{one}/versions/{second.pk}/promote", f"{one}/traffic", f"{one}/delete"):
        answer = viewer.post(address, {"confirm_name": "acme/acme-adapter"})
        assert answer.status_code == 403
        assert set(answer.context["able"]) == {"owner", "admin", "developer"}
    assert adapter_of(houses.acme).shares == [{"version": 1, "permille": 1000}]


def test_a_suspended_tenant_looks_and_changes_nothing(
    alice: Client, one: str, houses: TwoTenants
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    assert not alice.get(one).context["may_write"]
    _, second = versions_of(houses.acme)
    assert alice.post(f"{one}/versions/{second.pk}/promote").status_code == 403
    assert adapter_of(houses.acme).main == 1


def test_a_version_of_another_adapter_is_not_found_below_this_one(
    alice: Client, one: str, acme_address: str, houses: TwoTenants
) -> None:
    theirs = houses.globex.adapter_version
    for what in ("", "/promote", "/archive", "/delete"):
        call = alice.post if what == "/promote" else alice.get
        assert call(f"{one}/versions/{theirs.pk}{what}").status_code == 404
        other = f"{acme_address}adapters/{theirs.adapter_id}/versions/{theirs.pk}{what}"
        assert call(other).status_code == 404


def test_a_form_from_elsewhere_changes_nothing(one: str, houses: TwoTenants) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(houses.acme.people["owner"])
    _, second = versions_of(houses.acme)
    assert client.post(f"{one}/versions/{second.pk}/promote").status_code == 403
    assert adapter_of(houses.acme).main == 1


def test_a_long_list_of_versions_has_pages(alice: Client, one: str, houses: TwoTenants) -> None:
    with operator_scope("test"):
        adapter = adapter_of(houses.acme)
        for _ in range(26):
            a_ready_version(adapter)
        set_traffic_split(adapter, {28: 1000})
    first = alice.get(one).context["page"]
    rest = alice.get(one, {"cursor": first.next_cursor}).context["page"]
    assert [len(first.rows), len(rest.rows)] == [25, 3]
    assert alice.get(one, {"cursor": "made up"}).status_code == 200
