"""The log of requests as pages: filters in the address, the time line, the file."""

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from control_plane.dashboard.pages import requests

from inference.models import WastedAttempt
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, TwoTenants
from tests.support.usage_entries import NOON, WEEK, usage_record

pytestmark = pytest.mark.django_db
TODAY = datetime.now(UTC).date()
YESTERDAY = TODAY - timedelta(days=1)
SCRIPT = "<script>alert(1)</script>"


def shown(answer: Any) -> list[str]:
    assert answer.status_code == 200
    return [str(row.record.request_id) for row in answer.context["rows"]]


def content_of(answer: Any) -> str:
    async def parts() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(parts)().decode()


def test_filters_narrow_the_list_and_stand_in_the_address(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    key = houses.acme.key
    plain = usage_record(key)
    failed = usage_record(key, at=NOON + timedelta(minutes=1), outcome="failed", ttft_ms=900)
    usage_record(houses.globex.key)
    client, address = signed_in("viewer"), f"{acme_address}requests"
    assert shown(client.get(address, WEEK)) == [str(failed.request_id), str(plain.request_id)]
    for chosen in (
        {"outcome": "failed"},
        {"ttft_over_ms": "899"},
        {"since": "2026-01-05T12:00:30Z"},
        {"request_id": failed.request_id.hex},
    ):
        answer = client.get(address, WEEK | chosen)
        assert shown(answer) == [str(failed.request_id)], chosen
        assert answer.context["filters"].errors == {}
    assert shown(client.get(address, WEEK | {"project_id": str(houses.globex.project.id)})) == []
    # Of the last seven days, which have none.
    assert shown(client.get(address)) == []


@pytest.mark.parametrize(
    ("chosen", "wrong"),
    [
        ({"since": "yesterday"}, "since"),
        ({"since": TODAY.isoformat(), "before": YESTERDAY.isoformat()}, "before"),
        ({"since": "2020-01-01"}, "since"),
        ({"outcome": "exploded"}, "outcome"),
        ({"project_id": "web"}, "project_id"),
        ({"request_id": "0192"}, "request_id"),
        ({"cost_over": "a lot"}, "cost_over"),
        ({"duration_over_ms": "-1"}, "duration_over_ms"),
        ({"ttft_over_ms": "soon"}, "ttft_over_ms"),
        ({"model": "a\x00b"}, "model"),
    ],
)
def test_a_filter_that_makes_no_sense_is_said_beside_it_and_the_others_hold(
    chosen: dict[str, str],
    wrong: str,
    signed_in: SignIn,
    houses: TwoTenants,
    acme_address: str,
) -> None:
    record = usage_record(houses.acme.key, error_code="worker_lost")
    usage_record(houses.acme.key)
    client = signed_in("viewer")
    answer = client.get(f"{acme_address}requests", WEEK | {"error_code": "worker_lost"} | chosen)
    assert list(answer.context["filters"].errors) == [wrong]
    if wrong not in WEEK:
        assert shown(answer) == [str(record.request_id)]
    file = client.get(f"{acme_address}requests/export.csv", chosen)
    assert (file.status_code, file["Location"].split("?")[0]) == (302, f"{acme_address}requests")


def test_a_page_leads_on_to_the_next_with_its_filters(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "ROWS", 2)
    made = {str(usage_record(houses.acme.key).request_id) for _ in range(3)}
    client, address = signed_in("viewer"), f"{acme_address}requests"
    first = client.get(address, WEEK)
    second = client.get(address, WEEK | {"cursor": first.context["page"].next_cursor})
    assert {*shown(first), *shown(second)} == made
    # A cursor of other filters leads to the start.
    other = client.get(
        address, WEEK | {"model": "small", "cursor": first.context["page"].next_cursor}
    )
    assert shown(other) == shown(first)


def test_one_request_tells_its_time_line_prices_and_cost(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    acme = houses.acme
    record = usage_record(
        acme.key, attempt=2, worker_id="w#2", queue_ms=400, ttft_ms=450,
        price_prompt=2_000_000, price_cached=75_000, price_completion=6_000_000,
        cost_nanos=47_000,
    )  # fmt: skip
    with operator_scope("test"):
        WastedAttempt.objects.create(
            request_id=record.request_id, attempt=1, tenant=acme.tenant, project=acme.project,
            api_key=acme.key, tier="premium", pool="demo", model="small", worker_id="w#1",
            completion_tokens=4, reason="worker_lost", ended_at=NOON + timedelta(milliseconds=300),
        )  # fmt: skip
    answer = signed_in("viewer").get(f"{acme_address}requests/{record.request_id}")
    steps = answer.context["steps"]
    assert [step.word for step in steps] == [
        "Admitted and queued",
        "Attempt ended early",
        "Taken by a worker",
        "First token",
        "Completed",
    ]
    assert (steps[1].entry.worker_id, steps[1].note) == ("w#1", "worker lost, 4 tokens unbilled")
    spans = [(span.name, span.milliseconds) for span in answer.context["spans"]]
    assert spans == [("queue", 400), ("prefill", 50), ("decode", 450)]
    html = answer.content.decode()
    for text in ("$2.00", "$0.075", "$6.00", "$0.000047", "w#2", "12:00:00.000 UTC"):
        assert text in html, text


def test_a_request_without_any_time_or_worker_is_shown_too(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    record = usage_record(
        houses.acme.key, attempt=0, worker_id=None, outcome="expired", queue_ms=None, ttft_ms=None,
        finished_at=NOON,
    )  # fmt: skip
    answer = signed_in("viewer").get(f"{acme_address}requests/{record.request_id}")
    assert answer.context["spans"] == []
    assert [step.word for step in answer.context["steps"]] == ["Admitted and queued", "Expired"]


def test_what_records_name_is_text(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    record = usage_record(houses.acme.key, model=SCRIPT, error_code=SCRIPT, worker_id=SCRIPT)
    client = signed_in("viewer")
    chosen = WEEK | {"model": SCRIPT, "error_code": SCRIPT}
    for page in ("requests", f"requests/{record.request_id}"):
        html = client.get(f"{acme_address}{page}", chosen).content.decode()
        assert SCRIPT not in html and "&lt;script&gt;" in html


def test_the_file_holds_what_is_filtered(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = usage_record(houses.acme.key, model="@sum")
    usage_record(houses.acme.key)
    usage_record(houses.globex.key, model="@sum")
    client, address = signed_in("viewer"), f"{acme_address}requests/export.csv"
    answer = client.get(address, WEEK | {"model": "@sum"})
    assert answer["Cache-Control"] == "no-store"
    text = content_of(answer)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["id"], row["model"]) for row in rows] == [(str(record.request_id), "'@sum")]
    assert CANARY not in text
    monkeypatch.setattr(requests, "MAX_CSV_ROWS", 1)
    long = client.get(address, WEEK, follow=True)
    assert [message.level_tag for message in long.context["messages"]] == ["error"]


def test_the_call_of_the_api_finds_the_same(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    record = usage_record(houses.acme.key, model="a&b $(x)")
    client = signed_in("viewer")
    answer = client.get(f"{acme_address}requests", WEEK | {"model": "a&b $(x)"})
    assert shown(answer) == [str(record.request_id)]
    called = answer.context["call"].split('"')[1]
    path = called[called.index("/api/") :]
    assert [row["id"] for row in client.get(path).json()["data"]] == [str(record.request_id)]
    assert "$(" not in called


def test_who_made_a_key_is_told_to_whom_may_know_people(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    acme = houses.acme
    with operator_scope("test"):
        ApiKey.objects.filter(id=acme.key.id).update(created_by=acme.people["developer"])
    record = usage_record(acme.key)
    for role, is_told in (("admin", True), ("viewer", False)):
        client = signed_in(role)
        for page in ("requests", f"requests/{record.request_id}"):
            html = client.get(f"{acme_address}{page}", WEEK).content.decode()
            assert ("developer@acme.example" in html) is is_told, (role, page)
    chosen = WEEK | {"created_by_id": str(acme.people["developer"].id)}
    assert shown(signed_in("developer").get(f"{acme_address}requests", chosen)) == [
        str(record.request_id)
    ]
