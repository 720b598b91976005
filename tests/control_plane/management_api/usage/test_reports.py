"""Reports of usage and costs: what they group by, whose they are, and that nothing is left out."""

import csv
import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from inference.histograms import ERROR
from tenants.access.api_keys import issue_api_key, revoke_api_key
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Project
from tenants.permissions import ROLE_PERMISSIONS, Permission, Role
from tests.control_plane.management_api.usage.conftest import BEGIN, RANGE, add, use
from tests.support.api_client import ApiClient
from tests.support.two_tenants import CANARY, COST_NANOS, House

AsRole = Callable[[str], ApiClient]


def second_key(house: House) -> ApiKey:
    with operator_scope("test"):
        project = Project.objects.create(tenant=house.tenant, name="second")
        return issue_api_key(project).record


@pytest.mark.parametrize(
    ("group_by", "expected"),
    [
        ("day", [{"date": "2026-03-02"}, {"date": "2026-03-01"}]),
        ("model", [{"model": "small"}, {"model": "large"}]),
        ("adapter", [{"adapter": "poems"}, {"adapter": ""}]),
        ("tier", [{"tier": "premium"}, {"tier": "free"}]),
        (
            "model,tier",
            [
                {"model": "small", "tier": "premium"},
                {"model": "small", "tier": "free"},
                {"model": "large", "tier": "premium"},
            ],
        ),
    ],
)
def test_usage_is_grouped_by_what_is_asked_for(
    as_role: AsRole, acme: House, group_by: str, expected: list[dict[str, str]]
) -> None:
    add(
        use(acme),
        use(acme, model="large"),
        use(acme, day=1, adapter="poems"),
        use(acme, day=1, tier="free", outcome="failed", wasted_tokens=3),
    )
    answer = as_role("viewer").get("usage", group_by=group_by, **RANGE).json()
    assert answer["group_by"] == group_by.split(",")
    found = [
        {name: row[name] for name in (expected[0].keys() & row.keys())} for row in answer["data"]
    ]
    assert found == expected
    assert sum(row["requests"] for row in answer["data"]) == 4
    assert sum(row["failed"] for row in answer["data"]) == 1
    assert sum(row["wasted_tokens"] for row in answer["data"]) == 3


def test_usage_is_grouped_and_narrowed_by_project_and_key(as_role: AsRole, acme: House) -> None:
    other = second_key(acme)
    add(use(acme), use(acme, key=other), use(acme, key=other))
    client = as_role("viewer")
    rows = client.get("usage", group_by="api_key", **RANGE).json()["data"]
    assert {row["api_key_id"]: row["requests"] for row in rows} == {
        str(acme.key.id): 1,
        str(other.id): 2,
    }
    for narrowed in ({"project_id": other.project_id}, {"api_key_id": other.id}):
        (row,) = client.get("usage", group_by="project", **narrowed, **RANGE).json()["data"]
        assert (row["project_id"], row["requests"]) == (str(other.project_id), 2)
    assert client.get("usage", model="unknown", **RANGE).json()["data"] == []


def test_rows_name_project_key_and_creator_beside_their_ids(as_role: AsRole, acme: House) -> None:
    key = second_key(acme)
    with operator_scope("test"):
        owner = acme.people["owner"]
        ApiKey.objects.filter(id=key.id).update(name="nightly", created_by=owner)
        key.refresh_from_db()
        revoke_api_key(key)
    add(use(acme, key=key))
    groups = {"group_by": "project,api_key,created_by", **RANGE}
    named = {
        "project_name": "second",
        "api_key_name": "nightly",
        "created_by_email": owner.email,
    }
    for report in ("usage", "costs"):
        (row,) = as_role("admin").get(report, **groups).json()["data"]
        assert {name: row[name] for name in named} == named
        file = as_role("admin").get(report, format="csv", **groups).content.decode()
        (cells,) = csv.DictReader(io.StringIO(file))
        assert {name: cells[name] for name in named} == named
        assert list(cells)[:2] == ["project_id", "project_name"]


def test_who_may_not_know_people_is_told_ids_alone(as_role: AsRole, acme: House) -> None:
    with operator_scope("test"):
        ApiKey.objects.filter(id=acme.key.id).update(created_by=acme.people["owner"])
    add(use(acme))
    groups = {"group_by": "created_by", **RANGE}
    may_not = [role for role in Role if Permission.VIEW_PEOPLE not in ROLE_PERMISSIONS[role]]
    assert may_not
    for role in may_not:
        answer = as_role(role).get("usage", **groups)
        assert "@" not in answer.content.decode()
        assert "@" not in as_role(role).get("usage", format="csv", **groups).content.decode()


def test_quantiles_are_right_over_a_range(as_role: AsRole, acme: House) -> None:
    latencies = [float(number) for number in range(1, 2001)]
    add(
        *(
            use(
                acme,
                day=number % 28,
                ttft_ms=latency,
                itl_ms=latency / 100,
                duration_ms=latency,
                queue_ms=latency,
            )
            for number, latency in enumerate(latencies)
        )
    )
    (row,) = as_role("viewer").get("usage", group_by="model", **RANGE).json()["data"]
    for name, scale in (
        ("ttft_ms", 1),
        ("inter_token_ms", 0.01),
        ("duration_ms", 1),
        ("queue_ms", 1),
    ):
        for quantile, exact in (("p50", 1000), ("p95", 1900), ("p99", 1980)):
            # Shown with three digits.
            assert row[name][quantile] == pytest.approx(exact * scale, rel=ERROR + 0.005)


def test_costs_are_told_in_nanos_and_exact_dollars(as_role: AsRole, acme: House) -> None:
    answer = as_role("viewer").get("costs", **{"from": "2026-01-01", "to": "2026-01-31"}).json()
    (row,) = answer["data"]
    assert (row["cost_nanos"], row["cost_dollars"]) == (COST_NANOS, "1.234567891")
    assert (row["object"], row["date"]) == ("cost.total", "2026-01-02")
    add(*(use(acme, model=f"m{number}", cost_nanos=10**17 + number) for number in range(3)))
    answer = as_role("viewer").get("costs", group_by="model", limit=1, **RANGE).json()
    assert len(answer["data"]) == 1 and answer["next_cursor"]
    assert answer["total_cost_nanos"] == 3 * 10**17 + 3
    assert answer["total_cost_dollars"] == "300000000.000000003"


def test_pages_of_a_report_leave_nothing_out(as_role: AsRole, acme: House) -> None:
    add(*(use(acme, day=day, model=f"m{day % 3}", adapter="") for day in range(10)))
    client = as_role("viewer")
    seen: list[tuple[str, str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get("usage", group_by="model,adapter,day", limit=4, **RANGE, **cursor).json()
        seen += [(row["model"], row["date"]) for row in page["data"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len(seen) == len(set(seen)) == 10
    assert seen == sorted(seen, reverse=True)
    refused = client.get("usage", group_by="day", **cursor)
    assert refused.json()["error"]["code"] == "bad_cursor"


def test_sums_by_the_hour_add_up_to_those_of_the_day(as_role: AsRole, acme: House) -> None:
    hours_ms = [int((BEGIN + timedelta(hours=hour)).timestamp() * 1000) for hour in (0, 5, 5, 23)]
    add(*(use(acme, arrived_ms=ms, cost_nanos=ms % 97) for ms in hours_ms))
    client, asked = as_role("viewer"), {"granularity": "hour", **RANGE}
    answer = client.get("costs", group_by="hour,model", **asked).json()
    assert (answer["granularity"], answer["group_by"]) == ("hour", ["hour", "model"])
    assert [(row["hour"], row["requests"]) for row in answer["data"]] == [
        ("2026-03-01T23:00:00Z", 1),
        ("2026-03-01T05:00:00Z", 2),
        ("2026-03-01T00:00:00Z", 1),
    ]
    by_day = client.get("costs", **RANGE).json()
    assert (
        answer["total_cost_nanos"] == by_day["total_cost_nanos"] == sum(ms % 97 for ms in hours_ms)
    )
    first = client.get("usage", limit=1, **asked).json()
    assert first["group_by"] == ["hour", "project"]
    rest = client.get("usage", cursor=first["next_cursor"], **asked).json()
    assert [row["hour"][11:13] for row in rest["data"]] == ["05", "00"]
    file = client.get("usage", format="csv", **asked).content.decode()
    assert file.startswith("hour,project_id,") and "2026-03-01T05:00:00Z" in file


@pytest.mark.parametrize(
    ("query", "param", "said"),
    [
        ({"granularity": "hour", "group_by": "day"}, "group_by", "hour, project"),
        ({"group_by": "hour"}, "group_by", "day, project"),
        ({"granularity": "hour", "from": "2026-03-01", "to": "2026-04-01"}, "from", "31 days"),
        ({"granularity": "minute"}, "granularity", "hour"),
        ({"pool": "p"}, "pool", "pool"),
        ({"group_by": "pool"}, "group_by", "project"),
        ({"created_by_id": "x"}, "created_by_id", "id"),
    ],
)
def test_what_no_sums_answer_is_refused_beside_the_field(
    as_role: AsRole, query: dict[str, str], param: str, said: str
) -> None:
    for report in ("usage", "costs", "errors"):
        answer = as_role("viewer").get(report, **query)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param), error
        assert said in error["message"]


def test_usage_is_grouped_and_narrowed_by_who_created_the_key(as_role: AsRole, acme: House) -> None:
    with operator_scope("test"):
        alice = acme.people["developer"]
        hers = issue_api_key(acme.project, created_by=alice).record
        more = issue_api_key(acme.project, created_by=alice).record
    add(use(acme), use(acme, key=hers), use(acme, key=more))
    client = as_role("viewer")
    rows = client.get("usage", group_by="created_by", **RANGE).json()["data"]
    assert {row["created_by_id"]: row["requests"] for row in rows} == {None: 1, str(alice.id): 2}
    one = client.get("usage", group_by="created_by", limit=1, **RANGE).json()
    (other,) = client.get(
        "usage", group_by="created_by", cursor=one["next_cursor"], **RANGE
    ).json()["data"]
    assert {one["data"][0]["created_by_id"], other["created_by_id"]} == {None, str(alice.id)}
    narrowed = client.get("costs", created_by_id=alice.id, group_by="model", **RANGE).json()
    assert narrowed["total_cost_nanos"] == 2_000


def test_errors_are_counted_by_code(as_role: AsRole, acme: House, globex: House) -> None:
    add(
        use(acme),
        use(acme, outcome="cancelled", error_code="cancelled"),
        *(use(acme, outcome="failed", error_code="worker_lost", day=day) for day in (0, 0, 1)),
        use(acme, outcome="expired", error_code="service_unavailable", model="large"),
        use(acme, outcome="refused"),
        use(globex, outcome="failed", error_code="worker_lost"),
    )
    client = as_role("viewer")

    def counted(**query: Any) -> list[tuple[Any, ...]]:
        rows = client.get("errors", **RANGE, **query).json()["data"]
        names = ("date", "hour", "model", "code", "requests")
        return [tuple(row[name] for name in names if name in row) for row in rows]

    assert counted(group_by="model") == [
        ("small", "worker_lost", 3),
        ("small", "unknown", 1),
        ("large", "service_unavailable", 1),
    ]
    assert counted(group_by="day", model="small") == [
        ("2026-03-02", "worker_lost", 1),
        ("2026-03-01", "worker_lost", 2),
        ("2026-03-01", "unknown", 1),
    ]
    assert counted(granularity="hour", group_by="hour", model="large") == [
        ("2026-03-01T07:00:00Z", "service_unavailable", 1)
    ]
    usage = client.get("usage", group_by="model", **RANGE).json()["data"]
    ended = sum(row["failed"] + row["expired"] + row["refused"] for row in usage)
    assert ended == sum(row[-1] for row in counted(group_by="model")) == 5
    file = client.get("errors", group_by="model", format="csv", **RANGE).content.decode()
    assert file.splitlines()[:2] == ["model,code,requests", "small,worker_lost,3"]


@pytest.mark.parametrize("group_by", ["", "week", "day,day", "day,", "tenant", "day;model"])
def test_what_cannot_be_grouped_by_is_refused(as_role: AsRole, group_by: str) -> None:
    answer = as_role("viewer").get("usage", group_by=group_by)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "group_by"


# CSV --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["parameter", "accept"])
def test_a_report_comes_as_csv(as_role: AsRole, acme: House, how: str) -> None:
    add(*(use(acme, day=day, model="=HYPERLINK(1)", ttft_ms=50) for day in range(28)))
    client = as_role("viewer")
    query = {"group_by": "day,model", "limit": "3", **RANGE}
    if how == "parameter":
        answer = client.get("usage", format="csv", **query)
    else:
        answer = client.http.get(
            f"{client.tenant}/usage", query, headers={"accept": "text/csv, */*;q=0.1"}
        )
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert "usage-2026-03-01-2026-03-31.csv" in answer.headers["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert len(rows) == 28
    assert rows[0]["date"] == "2026-03-28"
    assert rows[0]["model"] == "'=HYPERLINK(1)"
    assert float(rows[0]["ttft_ms_p95"]) == pytest.approx(50, rel=0.05)
    assert rows[0]["inter_token_ms_p50"] == ""


@pytest.mark.parametrize("report", ["usage", "costs"])
def test_a_report_of_nothing_has_its_heading_as_csv(as_role: AsRole, report: str) -> None:
    def asked(first: str, last: str) -> Any:
        return as_role("viewer").get(
            report, **{"from": first, "to": last}, format="csv", group_by="day,model"
        )

    nothing, something = asked("2020-01-01", "2020-01-31"), asked("2026-01-01", "2026-01-31")
    assert nothing.headers["Content-Type"] == "text/csv; charset=utf-8"
    heading, *rows = something.content.splitlines()
    assert rows and nothing.content.splitlines() == [heading]


def test_costs_come_as_csv_with_exact_dollars(as_role: AsRole) -> None:
    answer = as_role("billing").get(
        "costs", **{"from": "2026-01-01", "to": "2026-01-31"}, format="csv"
    )
    (row,) = csv.DictReader(io.StringIO(answer.content.decode()))
    assert row["cost_dollars"] == "1.234567891"


# Whose ------------------------------------------------------------------------------------------


def test_without_a_tenant_in_the_address_it_is_the_callers(
    as_role: AsRole, acme: House, globex: House
) -> None:
    year = {"from": "2026-01-01", "to": "2026-12-31", "group_by": "model"}
    person = as_role("viewer").get("/api/v1/usage", **year)
    key = ApiClient(acme.tenant.id, key=acme.issue(scopes=["usage:read"]))
    for answer in (person, key.get("/api/v1/usage", **year)):
        assert [row["model"] for row in answer.json()["data"]] == ["acme-model"]
        assert CANARY not in answer.content.decode()
    for client in (as_role("viewer"), key):
        refused = client.get("/api/v1/costs", tenant_id=globex.tenant.id)
        assert refused.status_code == 404
        assert client.get("/api/v1/costs", group_by="tenant").status_code == 400


def test_who_is_in_several_tenants_says_which(acme: House, globex: House) -> None:
    alice = acme.people["viewer"]
    with operator_scope("test"):
        type(acme.members["viewer"]).objects.create(tenant=globex.tenant, user=alice, role="viewer")
    client = ApiClient(acme.tenant.id, user=alice)
    assert client.get("/api/v1/usage").json()["error"]["param"] == "tenant_id"
    year = {"from": "2026-01-01", "to": "2026-12-31", "group_by": "model"}
    answer = client.get("/api/v1/usage", tenant_id=globex.tenant.id, **year).json()
    assert [row["model"] for row in answer["data"]] == [f"{CANARY}-model"]
