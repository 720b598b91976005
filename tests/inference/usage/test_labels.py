"""Usage by whom it was for: stored where a project names it, summed up with the records, bounded,
erased with its tenant."""

from typing import Any

import pytest
from django.db import connection
from redis import Redis

from gpu_workers.protocol.messages import Outcome
from inference.models import LabelUsage, UsageQuarantine, UsageRecord, WastedAttempt
from inference.operations.label_checks import label_problems
from inference.operations.sum_checks import sum_problems
from inference.usage import labels
from inference.usage.collector import UsageCollector
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import ApiKey, Tenant
from tenants.offboarding.closing import close_tenant
from tenants.offboarding.export import tenant_records
from tests.support.projects import make_key
from tests.support.usage_entries import COST_NANOS, PRICED, append, usage_entry, waste_entry

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("operators_session")]
ALICE = {"user": "alice", "metadata.team": "growth"}


def rows(**only: Any) -> dict[tuple[str, str], int]:
    """Requests of each name and value."""
    found = LabelUsage.objects.filter(**only).values_list("name", "value", "requests")
    return {(name, value): requests for name, value, requests in found}


def problems() -> list[str]:
    return [*sum_problems(), *label_problems()]


def test_a_record_bears_its_labels_and_each_name_sums_it_up(redis: Redis, api_key: ApiKey) -> None:
    append(
        redis,
        usage_entry(api_key, prices=PRICED, labels=ALICE),
        usage_entry(api_key, prices=PRICED, labels={"user": "bob", "metadata.team": "growth"}),
        usage_entry(api_key, prices=PRICED, outcome=Outcome.EXPIRED, labels={"user": "bob"}),
        usage_entry(api_key, prices=PRICED),
    )
    UsageCollector(redis).drain()
    assert rows() == {("user", "alice"): 1, ("user", "bob"): 2, ("metadata.team", "growth"): 2}
    team = LabelUsage.objects.get(name="metadata.team")
    assert (team.completed, team.prompt_tokens, team.cost_nanos) == (2, 22, 2 * COST_NANOS)
    bob = LabelUsage.objects.get(value="bob")
    assert (bob.completed, bob.expired, bob.cost_nanos) == (1, 1, COST_NANOS)
    assert UsageRecord.objects.filter(labels=ALICE).count() == 1
    assert UsageRecord.objects.filter(labels__isnull=True).count() == 1
    assert problems() == []


def test_what_names_nothing_stores_nothing(redis: Redis, api_key: ApiKey) -> None:
    append(redis, usage_entry(api_key), waste_entry(api_key))
    UsageCollector(redis).drain()
    assert not LabelUsage.objects.exists()
    assert UsageRecord.objects.get().labels is None
    assert WastedAttempt.objects.get().labels is None


def test_an_entry_that_comes_again_is_summed_up_once(redis: Redis, api_key: ApiKey) -> None:
    entry, lost = usage_entry(api_key, labels=ALICE), waste_entry(api_key, labels=ALICE)
    for _ in range(2):
        append(redis, entry, entry, lost)
        UsageCollector(redis).drain()
    assert rows() == {("user", "alice"): 1, ("metadata.team", "growth"): 1}
    assert set(LabelUsage.objects.values_list("wasted_tokens", flat=True)) == {5}
    assert problems() == []


def test_beyond_the_bound_of_a_day_values_are_other_and_known_ones_go_on(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "MAX_VALUES", 3)
    for batch in (["a", "b"], ["c", "d", "e", "a"], ["a", "e", "other"]):
        append(redis, *(usage_entry(api_key, labels={"user": each}) for each in batch))
        UsageCollector(redis).drain()
    assert rows() == {
        ("user", "a"): 3,
        ("user", "b"): 1,
        ("user", "c"): 1,
        ("user", "other"): 4,
    }
    # Its own record says who it was all the same.
    assert UsageRecord.objects.filter(labels={"user": "e"}).count() == 2
    assert problems() == []


def test_the_bound_is_of_a_name_and_a_tenant(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "MAX_VALUES", 1)
    theirs = make_key("Globex")
    append(
        redis,
        usage_entry(api_key, labels={"user": "a", "metadata.team": "t"}),
        usage_entry(theirs, labels={"user": "b"}),
        usage_entry(api_key, labels={"user": "c"}),
    )
    UsageCollector(redis).drain()
    assert rows(tenant=theirs.tenant_id) == {("user", "b"): 1}
    own = rows(tenant=api_key.tenant_id)
    assert own == {("user", "a"): 1, ("user", "other"): 1, ("metadata.team", "t"): 1}
    with tenant_scope(theirs.tenant_id):
        assert rows() == {("user", "b"): 1}
    with tenant_scope(theirs.tenant_id), connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM inference_labelusage")
        assert cursor.fetchone() == (1,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"team": "growth"},
        {"user": ""},
        {"user": "x" * 65},
        {"user": "a\x00b"},
        {f"metadata.{number}": "x" for number in range(5)},
    ],
)
def test_what_no_gateway_can_have_chosen_is_quarantined(
    redis: Redis, api_key: ApiKey, wrong: dict[str, str]
) -> None:
    append(redis, usage_entry(api_key, labels=wrong), usage_entry(api_key, labels=ALICE))
    UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    assert "label" in UsageQuarantine.objects.get().reason


def test_fsck_finds_a_sum_that_differs_and_tells_no_value(redis: Redis, api_key: ApiKey) -> None:
    append(redis, usage_entry(api_key, prices=PRICED, labels=ALICE))
    UsageCollector(redis).drain()
    LabelUsage.objects.filter(name="user").update(cost_nanos=1)
    (found,) = label_problems()
    assert f"label user differs from the records: cost_nanos by {1 - COST_NANOS:+}" in found
    assert "alice" not in found


def test_closing_a_tenant_forgets_whom_its_requests_were_for(redis: Redis, api_key: ApiKey) -> None:
    theirs = make_key("Globex")
    append(
        redis,
        usage_entry(api_key, labels=ALICE),
        waste_entry(api_key, labels=ALICE),
        usage_entry(theirs, labels={"user": "bob"}),
    )
    UsageCollector(redis).drain()
    with operator_scope("test"):
        tenant = Tenant.objects.get(id=api_key.tenant_id)
        kinds = [
            row for row in tenant_records(tenant) if row["kind"] in ("label_usage", "usage_record")
        ]
        assert {row.get("value") for row in kinds} >= {"alice", "growth"}
        assert ALICE in [row.get("labels") for row in kinds]
        close_tenant(tenant)
    # What its workers' outboxes had kept.
    append(redis, usage_entry(api_key, labels=ALICE))
    UsageCollector(redis).drain()
    assert rows() == {("user", "bob"): 1}
    assert UsageRecord.objects.filter(tenant=api_key.tenant_id).count() == 2
    assert not UsageRecord.objects.filter(tenant=api_key.tenant_id, labels__isnull=False).exists()
    assert not WastedAttempt.objects.filter(labels__isnull=False).exists()
    assert problems() == []
