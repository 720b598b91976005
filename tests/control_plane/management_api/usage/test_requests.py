"""The log of requests: what it finds, in which order, whose it is, and what one tells of itself."""

import csv
import io
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from control_plane.management_api.usage import requests
from control_plane.records import requests as files

from gpu_workers.protocol.labels import label_value
from inference.models import WastedAttempt
from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Project
from tests.support.api_client import ApiClient
from tests.support.two_tenants import CANARY, DAY, House
from tests.support.usage_entries import NOON, WEEK, usage_record

AsRole = Callable[[str], ApiClient]


def a_request(house: House, *, minutes: int = 0, key: ApiKey | None = None, **changes: Any) -> str:
    """A request on record, that many minutes after noon."""
    at = NOON + timedelta(minutes=minutes)
    return str(usage_record(key or house.key, at=at, **changes).request_id)


def found(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.content
    return [row["id"] for row in answer.json()["data"]]


def content_of(answer: Any) -> str:
    async def parts() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    assert answer.status_code == 200
    return async_to_sync(parts)().decode()


def a_key(house: House, **fields: Any) -> ApiKey:
    with operator_scope("test"):
        project = Project.objects.create(tenant=house.tenant, name=f"project {uuid.uuid4()}")
        return issue_api_key(project, **fields).record


def test_the_newest_come_first_and_nobody_elses(
    as_role: AsRole, acme: House, globex: House
) -> None:
    first, second = a_request(acme), a_request(acme, minutes=3)
    a_request(globex)
    answer = as_role("viewer").get("requests", **WEEK)
    assert found(answer) == [second, first]
    assert CANARY not in answer.content.decode()


def test_without_a_time_the_last_seven_days_are_shown(as_role: AsRole, acme: House) -> None:
    a_request(acme)
    now = datetime.now(UTC)
    recent = usage_record(acme.key, at=now)
    assert found(as_role("viewer").get("requests")) == [str(recent.request_id)]
    assert acme.usage.arrived_at == DAY


def test_each_filter_finds_what_it_names_and_nothing_else(
    as_role: AsRole, acme: House, globex: House
) -> None:
    mine = a_key(acme, created_by=acme.people["developer"])
    plain = a_request(acme)
    other = a_request(
        acme,
        minutes=1,
        key=mine,
        model="large",
        adapter="acme/poems",
        tier="free",
        outcome="failed",
        error_code="worker_lost",
        ttft_ms=2_000,
        finished_at=NOON + timedelta(minutes=1, seconds=9),
        cost_nanos=50_000_001,
    )
    viewer = as_role("viewer")
    for chosen in (
        {"project_id": mine.project_id},
        {"api_key_id": mine.id},
        {"created_by_id": acme.people["developer"].id},
        {"model": "large"},
        {"adapter": "acme/poems"},
        {"tier": "free"},
        {"outcome": "failed"},
        {"error_code": "worker_lost"},
        {"ttft_over_ms": 1999},
        {"duration_over_ms": 8999},
        {"cost_over": "0.05"},
        {"since": "2026-01-05T12:00:30Z"},
        {"request_id": other},
        {"request_id": f"chatcmpl-{uuid.UUID(other).hex}"},
        {"model": "large", "outcome": "failed", "ttft_over_ms": 0, "cost_over": "0"},
    ):
        assert found(viewer.get("requests", **(WEEK | chosen))) == [other], chosen
    for chosen in (
        {"project_id": globex.project.id},
        {"created_by_id": globex.people["developer"].id},
        {"outcome": "expired"},
        {"ttft_over_ms": 2000},
        {"duration_over_ms": 9000},
        {"cost_over": "0.050000001"},
        {"before": "2026-01-05T12:00:00Z"},
    ):
        assert found(viewer.get("requests", **(WEEK | chosen))) == [], chosen
    assert found(viewer.get("requests", request_id=plain)) == [plain]


@pytest.mark.parametrize(
    ("chosen", "param"),
    [
        ({"since": "yesterday"}, "since"),
        ({"since": "2026-01-02", "before": "2026-01-02"}, "before"),
        ({"since": "2025-01-01", "before": "2026-01-03"}, "since"),
        ({"since": "2100-01-01"}, "since"),
        ({"request_id": "0192"}, "request_id"),
        ({"project_id": "web"}, "project_id"),
        ({"outcome": "exploded"}, "outcome"),
        ({"ttft_over_ms": "-1"}, "ttft_over_ms"),
        ({"duration_over_ms": "99999999999"}, "duration_over_ms"),
        ({"cost_over": "1e3"}, "cost_over"),
        ({"cost_over": "0.0000000001"}, "cost_over"),
        ({"colour": "red"}, "colour"),
        ({"error_code": ""}, "error_code"),
        ({"format": "xlsx"}, "format"),
    ],
)
def test_what_makes_no_sense_is_said_of_its_parameter(
    as_role: AsRole, chosen: dict[str, str], param: str
) -> None:
    answer = as_role("viewer").get("requests", **chosen)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_pages_hold_each_request_once_however_many_arrive_in_a_millisecond(
    as_role: AsRole, acme: House
) -> None:
    made = {a_request(acme) for _ in range(7)}
    viewer, seen, cursor = as_role("viewer"), [], None
    for _ in range(4):
        page = viewer.get(
            "requests", **WEEK, limit=2, **({"cursor": cursor} if cursor else {})
        ).json()
        seen += [row["id"] for row in page["data"]]
        cursor = page["next_cursor"]
    assert cursor is None
    assert (len(seen), set(seen)) == (7, made)
    assert seen == sorted(seen, reverse=True)


def test_a_cursor_belongs_to_its_filters(as_role: AsRole, acme: House) -> None:
    for _ in range(2):
        a_request(acme)
    viewer = as_role("viewer")
    cursor = viewer.get("requests", **WEEK, limit=1).json()["next_cursor"]
    assert viewer.get("requests", **WEEK, model="small", cursor=cursor).status_code == 400


def test_one_tells_each_attempt_its_waste_and_its_cost(as_role: AsRole, acme: House) -> None:
    request_id = a_request(
        acme, attempt=2, worker_id="w#2", queue_ms=400, ttft_ms=450, adapter_version=3,
        price_prompt=2_000_000, price_cached=1_000_000, price_completion=6_000_000,
        price_permille=900,
    )  # fmt: skip
    with operator_scope("test"):
        WastedAttempt.objects.create(
            request_id=request_id, attempt=1, tenant=acme.tenant, project=acme.project,
            api_key=acme.key, tier="premium", pool="demo", model="small", worker_id="w#1",
            completion_tokens=4, generated_tokens=4, reason="worker_lost",
            ended_at=NOON + timedelta(milliseconds=300),
        )  # fmt: skip
    one = as_role("viewer").get(f"requests/{request_id}").json()
    told = [
        (each["step"], each["since_arrival_ms"], each["attempt"], each["worker_id"])
        for each in one["timeline"]
    ]
    assert told == [
        ("admitted", 0, None, None),
        ("attempt_ended", 300, 1, "w#1"),
        ("started", 400, 2, "w#2"),
        ("first_token", 450, 2, "w#2"),
        ("ended", 900, 2, "w#2"),
    ]
    waste = one["timeline"][1]
    assert (waste["reason"], waste["wasted_tokens"]) == ("worker_lost", 4)
    assert one["timeline"][-1]["reason"] == "stop"
    assert one["prices"] == {
        "prompt": 2_000_000,
        "cached": 1_000_000,
        "completion": 6_000_000,
        "permille": 900,
    }
    assert (one["cost_nanos"], one["cost_dollars"]) == (1_000_000, "0.001000000")
    assert (one["attempts"], one["adapter_version"], one["duration_ms"]) == (2, 3, 900)


def test_a_request_that_no_worker_took_has_neither_start_nor_token(
    as_role: AsRole, acme: House
) -> None:
    request_id = a_request(
        acme, attempt=0, worker_id=None, outcome="expired", finish_reason=None,
        error_code="no_worker", queue_ms=None, ttft_ms=None, cost_nanos=0,
    )  # fmt: skip
    one = as_role("viewer").get(f"requests/{request_id}").json()
    assert [each["step"] for each in one["timeline"]] == ["admitted", "ended"]
    assert (one["timeline"][-1]["reason"], one["timeline"][-1]["attempt"]) == ("no_worker", None)


def test_another_tenants_request_is_the_same_404_as_none(
    as_role: AsRole, acme: House, globex: House
) -> None:
    viewer = as_role("viewer")
    theirs = viewer.get(f"requests/{a_request(globex)}")
    unknown = viewer.get(f"requests/{uuid.uuid4()}")
    assert theirs.status_code == unknown.status_code == 404
    assert theirs.content == unknown.content
    assert found(viewer.get("requests", request_id=globex.usage.request_id)) == []


def test_the_file_holds_what_the_list_does_and_no_formula(
    as_role: AsRole, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [a_request(acme, minutes=each, model="=1+1") for each in range(5)]
    a_request(acme, model="large")
    monkeypatch.setattr(files, "ROWS_AT_ONCE", 2)
    answer = as_role("viewer").get("requests", **WEEK, model="=1+1", format="csv")
    assert answer["Content-Type"].startswith("text/csv")
    assert answer["Content-Disposition"].startswith("attachment")
    rows = list(csv.DictReader(io.StringIO(content_of(answer))))
    assert [row["id"] for row in rows] == made[::-1]
    assert {row["model"] for row in rows} == {"'=1+1"}
    assert (rows[0]["cost_nanos"], rows[0]["duration_ms"]) == ("1000000", "900")


def test_a_file_that_would_be_too_long_is_refused(
    as_role: AsRole, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        a_request(acme)
    viewer = as_role("viewer")
    monkeypatch.setattr(requests, "MAX_CSV_ROWS", 2)
    answer = viewer.get("requests", **WEEK, format="csv")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "since")
    monkeypatch.setattr(requests, "MAX_CSV_ROWS", 3)
    assert len(content_of(viewer.get("requests", **WEEK, format="csv")).splitlines()) == 4


def test_a_label_is_found_by_its_value_and_told(
    as_role: AsRole, acme: House, globex: House
) -> None:
    long = "y" * 512
    labels = {"user": "alice", "metadata.a": "growth: all"}
    mine = a_request(acme, labels=labels)
    cut = a_request(acme, labels={"user": label_value(long)})
    a_request(acme, labels={"user": "alicia"})
    a_request(acme)
    a_request(globex, labels=labels)
    viewer = as_role("viewer")
    assert found(viewer.get("requests", **WEEK, label="user:alice")) == [mine]
    assert found(viewer.get("requests", **WEEK, label="metadata.a:growth: all")) == [mine]
    assert found(viewer.get("requests", **WEEK, label=f"user:{long}")) == [cut]
    assert found(viewer.get("requests", **WEEK, label="user:other")) == []
    assert viewer.get(f"requests/{mine}").json()["labels"] == labels
    for wrong in ("user", "user:", "alice", "team:growth", "metadata.:x"):
        answer = viewer.get("requests", label=wrong)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "label"), wrong
