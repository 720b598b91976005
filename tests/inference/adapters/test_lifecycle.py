"""Adapters on record: names, versions, traffic, bounds, and the end of each."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, transaction

from inference.adapters import lifecycle, versions
from inference.adapters.bounds import used_bytes
from inference.models import Adapter, AdapterState, AdapterVersion
from inference.models.adapter import MOVES
from inference.models.catalog import ServedModelTenant
from tenants.audit.log import seal_now
from tenants.isolation.scoping import tenant_scope
from tenants.models import AuditEvent, Project, Tier
from tenants.offboarding.closing import close_tenant
from tenants.offboarding.export import tenant_records
from tests.support.adapters.records import (
    BASE,
    a_base,
    a_ready_version,
    an_adapter,
    an_upload,
    stored,
)
from tests.support.places import ROOT
from tests.support.projects import make_project
from tests.support.refusals import database_refuses, raises_conflict, raises_invalid

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
DAY = timedelta(days=1)


@pytest.fixture
def acme() -> Project:
    return make_project("Acme", "premium")


@pytest.fixture
def globex() -> Project:
    return make_project("Globex", "standard")


def limit(tier: str, **changes: int) -> None:
    Tier.objects.filter(name=tier).update(**changes)


def test_an_adapters_name_begins_with_its_tenants_slug(acme: Project, globex: Project) -> None:
    mine, theirs = an_adapter(acme.tenant), an_adapter(globex.tenant)
    assert (mine.name, theirs.name) == ("acme/support", "globex/support")
    acme.tenant.rename("Initech")
    assert Adapter.objects.get(pk=mine.pk).name == "acme/support"


@pytest.mark.parametrize(
    "slug",
    ["", "Support", "../x", "a/b", "a@1", "a b", "-a", "a-", "a..b", "ѕupport", "a\n", "x" * 101],
)
def test_what_is_no_name_is_refused(acme: Project, slug: str) -> None:
    with pytest.raises(ValidationError) as refused:
        an_adapter(acme.tenant, slug)
    assert "slug" in refused.value.error_dict


def test_a_name_is_taken_once_in_a_tenant(acme: Project) -> None:
    an_adapter(acme.tenant)
    with raises_conflict("name_taken", "slug"):
        an_adapter(acme.tenant)


def test_a_model_that_the_tenant_may_not_see_is_as_none(acme: Project, globex: Project) -> None:
    model = a_base("for-globex")
    ServedModelTenant.objects.create(model=model, tenant=globex.tenant)
    for name in ("for-globex", "nothing"):
        with raises_invalid("unknown_model", "model"):
            lifecycle.add_adapter(acme.tenant, slug="support", model=name)
    with tenant_scope(acme.tenant_id), raises_invalid("unknown_model", "model"):
        lifecycle.add_adapter(acme.tenant, slug="support", model="for-globex")


def test_versions_are_numbered_from_one_and_the_first_takes_the_traffic(acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    first, second = a_ready_version(adapter), a_ready_version(adapter)
    assert (first.number, second.number) == (1, 2)
    adapter.refresh_from_db()
    assert (adapter.main, adapter.canary) == (1, None)
    assert first.opaque_name != second.opaque_name


def test_a_version_goes_through_its_states_and_back_through_none(acme: Project) -> None:
    version = an_upload(an_adapter(acme.tenant))
    with raises_conflict("version_state", state="queued"):
        versions.mark_ready(version, stored(version))
    version = versions.begin_validation(version)
    assert versions.begin_validation(version).state == AdapterState.VALIDATING
    version = versions.mark_ready(version, stored(version))
    assert versions.mark_ready(version, stored(version)).is_ready  # told twice
    with raises_conflict("version_state", state="ready"):
        versions.begin_validation(version)
    with raises_conflict("version_state", state="ready"):
        versions.mark_refused(version, "late", "Too late.")


def test_a_version_that_is_refused_says_why(acme: Project) -> None:
    version = versions.begin_validation(an_upload(an_adapter(acme.tenant)))
    version = versions.mark_refused(version, "shape", "x" * 5_000)
    assert (version.state, version.refusal_code) == (AdapterState.REFUSED, "shape")
    assert len(version.refusal) == 1_000
    with raises_conflict("version_state", state="refused"):
        versions.mark_ready(version, stored(version))


def test_a_version_is_never_ready_for_a_base_that_it_was_not_looked_at_for(acme: Project) -> None:
    a_base("another-base")
    version = versions.begin_validation(an_upload(an_adapter(acme.tenant)))
    found = stored(version)
    lifecycle.archive_adapter(version.adapter)
    lifecycle.add_adapter(acme.tenant, slug="support", model="another-base")
    version = versions.mark_ready(version, found)
    assert (version.state, version.refusal_code) == ("refused", "adapter_base_changed")
    assert "another-base" in version.refusal


def test_the_table_of_moves_is_the_databases() -> None:
    sql = (ROOT / "inference" / "models" / "adapter_versions.sql").read_text()
    steps = set(
        re.findall(r"'([a-z]+-[a-z]+)'", sql.partition("step NOT IN (")[2].partition(")")[0])
    )
    assert steps == {f"{state}-{to}" for state, moves in MOVES.items() for to in moves}


@pytest.mark.parametrize(
    ("changes", "constraint"),
    [
        ({"number": 9}, "adapter_version_keeps_identity"),
        ({"state": "queued"}, "adapter_version_state"),
        ({"state": "deleted"}, "adapter_version_state"),
        ({"opaque_name": "0" * 64}, "adapter_version_never_changes"),
        ({"digest": "0" * 64}, "adapter_version_never_changes"),
        ({"rank": 1}, "adapter_version_never_changes"),
        ({"stored_bytes": 1}, "adapter_version_never_changes"),
        ({"path": "adapters/other"}, "adapter_version_never_moves"),
    ],
)
def test_nobody_changes_what_was_validated(
    acme: Project, changes: dict[str, Any], constraint: str
) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    with database_refuses(constraint=constraint), transaction.atomic():
        AdapterVersion.objects.filter(pk=version.pk).update(**changes)


def test_nobody_moves_an_adapter_to_another_tenant(acme: Project, globex: Project) -> None:
    adapter = an_adapter(acme.tenant)
    for changes in ({"tenant": globex.tenant}, {"slug": "other"}):
        with database_refuses(constraint="adapter_keeps_identity"), transaction.atomic():
            Adapter.objects.filter(pk=adapter.pk).update(**changes)


def test_a_version_of_anothers_adapter_is_refused_by_the_database(
    acme: Project, globex: Project
) -> None:
    adapter = an_adapter(acme.tenant)
    with (
        database_refuses(constraint="inference_adapterversion_adapter_id_of_tenant"),
        transaction.atomic(),
    ):
        AdapterVersion.objects.create(tenant=globex.tenant, adapter=adapter, number=1)
        connection.check_constraints()


def test_no_tenant_sees_or_changes_anothers(acme: Project, globex: Project) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    with tenant_scope(globex.tenant_id):
        assert not Adapter.objects.exists()
        assert not AdapterVersion.objects.filter(pk=version.pk).update(refusal="x")
        with pytest.raises(Adapter.DoesNotExist):
            lifecycle.archive_adapter(version.adapter)


def test_a_tenant_does_all_of_it_behind_its_walls(acme: Project) -> None:
    a_base()
    with tenant_scope(acme.tenant_id):
        adapter = lifecycle.add_adapter(acme.tenant, slug="support", model=BASE)
        a_ready_version(adapter)
        second = a_ready_version(adapter)
        lifecycle.set_traffic_split(adapter, {1: 900, 2: 100})
        lifecycle.set_traffic_split(adapter, {2: 1000})
        lifecycle.delete_adapter(adapter)
        second.refresh_from_db()
        assert second.delete_at is not None


# Traffic --------------------------------------------------------------------------------------


def test_traffic_goes_to_two_versions_and_back_to_one(acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    a_ready_version(adapter)
    a_ready_version(adapter)
    adapter = lifecycle.set_traffic_split(adapter, {1: 900, 2: 100})
    assert (adapter.permille_of(1), adapter.permille_of(2)) == (900, 100)
    adapter = lifecycle.set_traffic_split(adapter, {1: 300, 2: 700})
    assert (adapter.main, adapter.permille_of(1), adapter.permille_of(2)) == (2, 300, 700)
    adapter = lifecycle.set_traffic_split(adapter, {1: 1000})
    assert (adapter.permille_of(1), adapter.permille_of(2), adapter.canary) == (1000, 0, None)
    seal_now()
    assert AuditEvent.objects.filter(record_id=str(adapter.pk), verb="pointed").count() == 4


@pytest.mark.parametrize(
    "shares",
    [
        {},
        {1: 999},
        {1: 1001},
        {1: 0, 2: 1000},
        {1: 1100, 2: -100},
        {1: 500, 2: 400, 3: 100},
        {1: 500, 2: 400},
    ],
)
def test_traffic_that_is_not_whole_is_refused(acme: Project, shares: dict[int, int]) -> None:
    adapter = an_adapter(acme.tenant)
    for _ in range(3):
        a_ready_version(adapter)
    with raises_invalid("traffic_is_not_whole", "traffic"):
        lifecycle.set_traffic_split(adapter, shares)


def test_traffic_goes_to_versions_that_are_ready_alone(acme: Project, globex: Project) -> None:
    adapter = an_adapter(acme.tenant)
    a_ready_version(adapter)
    an_upload(adapter)
    for shares in ({2: 1000}, {1: 900, 2: 100}, {7: 1000}):
        with raises_conflict("version_not_ready", "traffic"):
            lifecycle.set_traffic_split(adapter, shares)


def test_a_version_with_traffic_is_not_archived(acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    first = a_ready_version(adapter)
    second = a_ready_version(adapter)
    lifecycle.set_traffic_split(adapter, {1: 999, 2: 1})
    for version in (first, second):
        with raises_conflict("version_has_traffic"):
            lifecycle.archive_version(version)
    lifecycle.set_traffic_split(adapter, {2: 1000})
    assert lifecycle.archive_version(first).state == AdapterState.ARCHIVED
    with raises_conflict("version_not_ready", "traffic"):
        lifecycle.set_traffic_split(adapter, {1: 1000})


# The end --------------------------------------------------------------------------------------


def test_what_is_stored_goes_after_the_drain(acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    version = a_ready_version(adapter)
    lifecycle.delete_adapter(adapter)
    version.refresh_from_db()
    assert version.state == AdapterState.ARCHIVED
    assert version.delete_at is not None
    wait = version.delete_at - datetime.now(UTC)
    assert wait > timedelta(seconds=acme.tenant.tier.max_queue_seconds)
    assert lifecycle.finish_deletions(datetime.now(UTC)) == 0
    assert lifecycle.finish_deletions(version.delete_at) == 1
    version.refresh_from_db()
    assert (version.state, version.path) == (AdapterState.DELETED, "")
    assert version.digest  # what it was stays on record


def test_a_version_that_nobody_has_validated_goes_at_once(acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    version = an_upload(adapter)
    lifecycle.delete_adapter(adapter)
    version.refresh_from_db()
    assert (version.state, version.refusal_code, version.upload) == ("refused", "withdrawn", None)
    assert lifecycle.finish_deletions() == 1


def test_a_version_that_was_refused_goes_at_once(acme: Project) -> None:
    version = an_upload(an_adapter(acme.tenant))
    versions.mark_refused(version, "cut", "It was cut.")
    lifecycle.delete_version(version)
    assert lifecycle.finish_deletions() == 1


def test_a_name_that_comes_back_goes_on_counting(acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    a_ready_version(adapter)
    lifecycle.archive_adapter(adapter)
    with raises_conflict("adapter_archived"):
        an_upload(adapter)
    again = an_adapter(acme.tenant)
    assert again.pk == adapter.pk
    assert a_ready_version(again).number == 2
    again.refresh_from_db()
    assert again.main == 2


def test_a_version_whose_adapter_was_archived_meanwhile_is_refused(acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    version = versions.begin_validation(an_upload(adapter))
    lifecycle.archive_adapter(adapter)
    version = versions.mark_ready(version, stored(version))
    assert (version.state, version.refusal_code) == (AdapterState.REFUSED, "adapter_archived")


def test_a_closed_tenant_has_no_adapters_and_an_export_has_them(acme: Project) -> None:
    a_ready_version(an_adapter(acme.tenant))
    kinds = [record["kind"] for record in tenant_records(acme.tenant)]
    assert {"adapter", "adapter_version"} <= set(kinds)
    close_tenant(acme.tenant)
    assert not Adapter.objects.filter(tenant=acme.tenant).exists()
    assert not AdapterVersion.objects.filter(tenant=acme.tenant).exists()


# Bounds ---------------------------------------------------------------------------------------


def test_a_tier_bounds_the_number_of_adapters(acme: Project) -> None:
    limit("premium", max_adapters=2)
    first = an_adapter(acme.tenant, "one")
    an_adapter(acme.tenant, "two")
    with raises_conflict("too_many_adapters"):
        an_adapter(acme.tenant, "three")
    lifecycle.archive_adapter(first)
    an_adapter(acme.tenant, "three")
    with raises_conflict("too_many_adapters"):
        an_adapter(acme.tenant, "one")  # back to life is one more, too


def test_a_tier_bounds_the_versions_that_requests_may_name(acme: Project) -> None:
    limit("premium", max_adapter_versions=2)
    first, second = (an_adapter(acme.tenant, slug) for slug in ("one", "two"))
    a_ready_version(first)
    silent = a_ready_version(first)
    with raises_conflict("too_many_adapter_versions"):
        an_upload(second)
    lifecycle.archive_version(silent)
    an_upload(second)
    with raises_conflict("too_many_adapter_versions"):
        an_upload(first)
    lifecycle.archive_adapter(first)
    an_upload(second)


def test_a_tier_bounds_bytes_of_uploads_as_of_what_is_stored(acme: Project) -> None:
    limit("premium", max_adapter_bytes=4_000)
    adapter = an_adapter(acme.tenant)
    first = an_upload(adapter, 3_000)
    with raises_conflict("adapter_storage_full"):
        an_upload(adapter, 1_001)
    first = versions.begin_validation(first)
    versions.mark_ready(first, stored(first, stored_bytes=1_000))
    assert used_bytes(acme.tenant) == 1_000
    second = versions.begin_validation(an_upload(adapter, 3_000))
    second = versions.mark_ready(second, stored(second, stored_bytes=3_001))
    assert (second.state, second.refusal_code) == (AdapterState.REFUSED, "adapter_storage_full")
    assert used_bytes(acme.tenant) == 1_000


def test_a_tier_bounds_the_rank(acme: Project) -> None:
    limit("premium", max_adapter_rank=8)
    adapter = an_adapter(acme.tenant)
    assert a_ready_version(adapter, rank=8).is_ready
    assert a_ready_version(adapter, rank=9).refusal_code == "rank_beyond_tier"


def test_an_adapter_keeps_so_many_versions(acme: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.adapters.bounds.MAX_VERSIONS", 2)
    adapter = an_adapter(acme.tenant)
    a_ready_version(adapter)
    second = a_ready_version(adapter)
    with raises_conflict("too_many_versions"):
        an_upload(adapter)
    lifecycle.delete_version(second)
    lifecycle.finish_deletions(datetime.now(UTC) + DAY)
    an_upload(adapter)
