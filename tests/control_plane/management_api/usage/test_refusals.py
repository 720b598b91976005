"""Reports of refused requests: what they group by, whose they are, the newest with their
sentence."""

import csv
import io
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from gpu_workers.protocol.refusals import NEWEST
from inference.refusals.reports import Dimension, refusals_by
from tenants.isolation.scoping import operator_scope
from tests.support.api_client import ApiClient
from tests.support.refused.on_record import AT, later, notice_of, of_key, refuse
from tests.support.two_tenants import CANARY, House

AsRole = Callable[[str], ApiClient]
RANGE = {"from": "2026-03-01", "to": "2026-03-31"}
UNKNOWN = {"code": "model_not_found", "model": "(unknown)", "limit": "", "scope": ""}


def rows_of(client: ApiClient, **query: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.get("refusals", **(RANGE | query)).json()["data"]
    for row in rows:
        assert row.pop("object") == "refusal.total"
    return rows


@pytest.fixture
def refused(acme: House, globex: House) -> None:
    refuse(
        of_key(acme.key, count=3),
        of_key(acme.key, later(hours=1), count=2),
        of_key(acme.key, later(days=1), count=4, **UNKNOWN),
        of_key(acme.key, later(days=1), project_id="", api_key_id="", model="(other)"),
        of_key(globex.key, count=100, code=CANARY),
        notice_of(globex.key, message=CANARY),
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"group_by": "day"}, [{"date": "2026-03-02", "refusals": 5},
                               {"date": "2026-03-01", "refusals": 5}]),
        ({"group_by": "code"}, [{"code": "requests_per_minute_exceeded", "refusals": 6},
                                {"code": "model_not_found", "refusals": 4}]),
        ({"group_by": "limit,scope"}, [
            {"limit": "requests_per_minute", "scope": "key", "refusals": 6},
            {"limit": None, "scope": None, "refusals": 4}]),
        ({"group_by": "hour", "granularity": "hour", "to": "2026-03-01"}, [
            {"hour": "2026-03-01T08:00:00Z", "refusals": 2},
            {"hour": "2026-03-01T07:00:00Z", "refusals": 3}]),
        ({"group_by": "model", "code": "model_not_found"}, [
            {"model": "(unknown)", "refusals": 4}]),
        ({"group_by": "code", "limit_name": ""}, [{"code": "model_not_found", "refusals": 4}]),
        ({"group_by": "code", "limit_name": "requests_per_minute", "scope": "key"}, [
            {"code": "requests_per_minute_exceeded", "refusals": 6}]),
        ({"group_by": "code", "scope": "tenant"}, []),
        ({"group_by": "hour", "granularity": "hour", "from": "0001-01-01", "to": "0001-01-01"}, []),
        ({"group_by": "day,project", "from": "9999-12-31", "to": "9999-12-31"}, []),
        ({"group_by": "code", "from": "2026-03-02", "to": "2026-03-02"}, [
            {"code": "requests_per_minute_exceeded", "refusals": 1},
            {"code": "model_not_found", "refusals": 4}]),
    ],
)  # fmt: skip
def test_refusals_are_grouped_and_narrowed_as_asked(
    as_role: AsRole, refused: None, query: dict[str, str], expected: list[dict[str, Any]]
) -> None:
    assert rows_of(as_role("viewer"), **query) == expected


def test_by_project_and_key_what_was_too_varied_is_nobodys(
    as_role: AsRole, acme: House, refused: None
) -> None:
    client = as_role("viewer")
    assert rows_of(client, group_by="project,api_key") == [
        {"project_id": str(acme.project.id), "api_key_id": str(acme.key.id), "refusals": 9},
        {"project_id": None, "api_key_id": None, "refusals": 1},
    ]
    # By hours, as days know no keys: the same sums.
    for narrowed in ({"project_id": acme.project.id}, {"api_key_id": acme.key.id}):
        assert [row["refusals"] for row in rows_of(client, group_by="day", **narrowed)] == [4, 5]
    assert rows_of(client, group_by="day", project_id=uuid.uuid4()) == []


def test_what_stands_beside_the_rows_is_of_all_pages(as_role: AsRole, refused: None) -> None:
    answer = as_role("viewer").get("refusals", limit=1, **RANGE).json()
    assert answer["next_cursor"] and len(answer["data"]) == 1
    assert {name: answer[name] for name in ("from", "to", "granularity", "group_by", "total")} == {
        **RANGE,
        "granularity": "day",
        "group_by": ["day", "code"],
        "total": 10,
    }
    client, seen = as_role("viewer"), []
    cursor: dict[str, str] = {}
    while True:
        found = client.get("refusals", limit=1, **RANGE, **cursor).json()
        seen += [(row["date"], row["code"], row["refusals"]) for row in found["data"]]
        if found["next_cursor"] is None:
            break
        cursor = {"cursor": found["next_cursor"]}
    assert seen == [
        ("2026-03-02", "requests_per_minute_exceeded", 1),
        ("2026-03-02", "model_not_found", 4),
        ("2026-03-01", "requests_per_minute_exceeded", 5),
    ]


def test_the_file_has_all_rows_and_no_formula(as_role: AsRole, acme: House) -> None:
    refuse(of_key(acme.key, model='=HYPERLINK("x")'), of_key(acme.key, model="small", count=2))
    answer = as_role("viewer").get("refusals", group_by="model,api_key", format="csv", **RANGE)
    assert answer["Content-Type"].startswith("text/csv")
    assert "refusals-2026-03-01-2026-03-31.csv" in answer["Content-Disposition"]
    assert list(csv.reader(io.StringIO(answer.content.decode()))) == [
        ["model", "api_key_id", "refusals"],
        ["small", str(acme.key.id), "2"],
        ['\'=HYPERLINK("x")', str(acme.key.id), "1"],
    ]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"from": "2026-03-02", "to": "2026-03-01"}, "from"),
        ({"from": "2025-01-01", "to": "2026-03-01"}, "from"),
        ({"granularity": "hour", "from": "2026-01-01", "to": "2026-03-01"}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"group_by": "tenant"}, "group_by"),
        ({"group_by": "hour"}, "group_by"),
        ({"group_by": "code,code"}, "group_by"),
        ({"group_by": ""}, "group_by"),
        ({"granularity": "minute"}, "granularity"),
        ({"project_id": "web"}, "project_id"),
        ({"api_key_id": "x" * 300}, "api_key_id"),
        ({"model": "m" * 201}, "model"),
        ({"colour": "red"}, "colour"),
        ({"format": "xml"}, "format"),
    ],
)
def test_what_cannot_be_asked_is_said_beside_the_field(
    as_role: AsRole, query: dict[str, str], param: str
) -> None:
    answer = as_role("viewer").get("refusals", **query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_the_newest_come_with_their_sentence_page_by_page(as_role: AsRole, acme: House) -> None:
    refuse(
        *(notice_of(acme.key, later(seconds=each), message=f"No. {each}") for each in range(99)),
        notice_of(acme.key, request_id="", limit="", scope="", model="", code="missing_scope"),
    )
    client = as_role("viewer")
    found = client.get("refusals/newest", limit=2).json()
    assert found["data"][0] == {
        "object": "refusal",
        "at": "2026-03-01T07:31:38Z",
        "request_id": str(uuid.UUID(int=7)),
        "project_id": str(acme.project.id),
        "api_key_id": str(acme.key.id),
        "model": "small",
        "code": "requests_per_minute_exceeded",
        "limit": "requests_per_minute",
        "scope": "key",
        "status": 429,
        "message": "No. 98",
    }
    seen = [row["message"] for row in found["data"]]
    while cursor := found["next_cursor"]:
        found = client.get("refusals/newest", limit=40, cursor=cursor).json()
        seen += [row["message"] for row in found["data"]]
    assert len(seen) == NEWEST and seen[:3] == ["No. 98", "No. 97", "No. 96"]
    [narrowed] = client.get("refusals/newest", code="missing_scope").json()["data"]
    assert (narrowed["model"], narrowed["limit"], narrowed["request_id"]) == (None, None, None)
    of_key_limits = client.get("refusals/newest", limit_name="requests_per_minute", scope="key")
    assert len(of_key_limits.json()["data"]) == 50
    for wrong in ({"colour": "red"}, {"project_id": "web"}, {"cursor": "x"}):
        assert client.get("refusals/newest", **wrong).status_code == 400


def test_nobody_sees_anothers_refusals(
    as_role: AsRole, with_scopes: Callable[..., ApiClient], refused: None, globex: House
) -> None:
    for client in (as_role("viewer"), with_scopes("usage:read")):
        assert CANARY not in client.get("refusals", group_by="code", **RANGE).content.decode()
        newest = client.get("refusals/newest").json()["data"]
        assert [row["message"] for row in newest] == ["acme sentence"]
        assert client.get("refusals", code=CANARY, **RANGE).json()["total"] == 0
        assert client.get("refusals", api_key_id=globex.key.id, **RANGE).json()["data"] == []


def test_operators_have_the_same_sums_over_all_tenants(
    acme: House, globex: House, refused: None
) -> None:
    day = AT.date()
    with operator_scope("test"):
        by_tenant = refusals_by(Dimension.TENANT, first=day, last=day)
        assert by_tenant == [
            {"tenant_id": globex.tenant.id, "refusals": 100},
            {"tenant_id": acme.tenant.id, "refusals": 5},
        ]
        assert refusals_by(Dimension.CODE, first=day, last=later(days=1).date()) == [
            {"code": CANARY, "refusals": 100},
            {"code": "requests_per_minute_exceeded", "refusals": 6},
            {"code": "model_not_found", "refusals": 4},
        ]
        [most] = refusals_by(Dimension.MODEL, first=day, last=later(days=9).date(), most=1)
        assert most == {"model": "small", "refusals": 105}
        [hour] = refusals_by(Dimension.HOUR, first=day, last=day, tenant_id=acme.tenant.id, most=1)
        assert (hour["hour"].hour, hour["refusals"]) == (7, 3)
