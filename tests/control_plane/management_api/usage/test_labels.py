"""Usage by whom it was for: grouped, narrowed, nobody else's; and the projects' choice of it."""

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from inference.usage.labels import add_to_label_usage
from inference.usage.rollups import Use
from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tests.support.api_client import ApiClient
from tests.support.two_tenants import CANARY, House

AsRole = Callable[[str], ApiClient]
BEGIN = datetime(2026, 3, 1, 7, tzinfo=UTC)
MARCH = {"from": "2026-03-01", "to": "2026-03-31"}


def add(house: House, labels: dict[str, str], *, day: int = 0, **changes: Any) -> None:
    fields: dict[str, Any] = {
        "tenant_id": str(house.tenant.id),
        "project_id": str(house.project.id),
        "api_key_id": str(house.key.id),
        "model": "small",
        "adapter": "",
        "tier": "premium",
        "arrived_ms": int((BEGIN + timedelta(days=day)).timestamp() * 1000),
        "outcome": "completed",
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cost_nanos": 1_000,
    }
    with operator_scope("test"):
        add_to_label_usage([(Use(**(fields | changes)), labels)])


def groups(answer: Any, *names: str) -> dict[Any, int]:
    assert answer.status_code == 200, answer.content
    return {tuple(row[name] for name in names): row["requests"] for row in answer.json()["data"]}


def test_usage_is_summed_up_by_each_value_of_a_label(
    as_role: AsRole, acme: House, globex: House
) -> None:
    add(acme, {"user": "alice", "metadata.team": "growth"})
    add(acme, {"user": "alice"}, day=1)
    add(acme, {"user": "bob", "metadata.team": "growth"}, day=1)
    add(globex, {"user": CANARY})
    viewer = as_role("viewer")
    answer = viewer.get("usage/labels", **MARCH)
    assert groups(answer, "value") == {("bob",): 1, ("alice",): 2}
    (alice,) = [row for row in answer.json()["data"] if row["value"] == "alice"]
    assert (alice["prompt_tokens"], alice["cost_nanos"]) == (20, 2_000)
    assert alice["cost_dollars"] == "0.000002000"
    assert CANARY not in answer.content.decode()
    team = viewer.get("usage/labels", **MARCH, name="metadata.team", group_by="date,value")
    assert groups(team, "date", "value") == {
        ("2026-03-02", "growth"): 1,
        ("2026-03-01", "growth"): 1,
    }
    one_day = viewer.get("usage/labels", **{"from": "2026-03-01", "to": "2026-03-01"})
    assert groups(one_day, "value") == {("alice",): 1}
    of_project = viewer.get("usage/labels", **MARCH, project_id=globex.project.id)
    assert groups(of_project, "value") == {}


def test_a_page_leads_on_to_the_next(as_role: AsRole, acme: House) -> None:
    for name in "abc":
        add(acme, {"user": name})
    viewer = as_role("viewer")
    first = viewer.get("usage/labels", **MARCH, limit=2).json()
    second = viewer.get("usage/labels", **MARCH, limit=2, cursor=first["next_cursor"]).json()
    values = [row["value"] for row in (*first["data"], *second["data"])]
    assert (values, second["next_cursor"]) == (["c", "b", "a"], None)


def test_the_file_has_all_rows_and_no_formula(as_role: AsRole, acme: House) -> None:
    add(acme, {"metadata.team": "=HYPERLINK(1)"})
    add(acme, {"metadata.team": "growth"}, day=1, outcome="failed", wasted_tokens=3)
    answer = as_role("viewer").get(
        "usage/labels", **MARCH, name="metadata.team", group_by="date,value", format="csv"
    )
    assert answer["Content-Type"].startswith("text/csv")
    assert "metadata.team-2026-03-01-2026-03-31.csv" in answer["Content-Disposition"]
    heading, *rows = csv.reader(io.StringIO(answer.content.decode()))
    assert (heading[:4], heading[-3:]) == (
        ["date", "value", "requests", "completed"],
        ["wasted_tokens", "cost_nanos", "cost_dollars"],
    )
    assert [[*row[:4], *row[-3:]] for row in rows] == [
        ["2026-03-02", "growth", "1", "0", "3", "1000", "0.000001000"],
        ["2026-03-01", "'=HYPERLINK(1)", "1", "1", "0", "1000", "0.000001000"],
    ]


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"name": "team"}, "name"),
        ({"group_by": "model"}, "group_by"),
        ({"group_by": "value,value"}, "group_by"),
        ({"group_by": ""}, "group_by"),
        ({"name": "team", "format": "csv"}, "name"),
        ({"format": "xml"}, "format"),
        ({"from": "2026-03-02", "to": "2026-03-01"}, "from"),
        ({"from": "2020-01-01", "to": "2026-03-01"}, "from"),
        ({"project_id": "web"}, "project_id"),
    ],
)
def test_what_makes_no_sense_is_said(as_role: AsRole, wrong: dict[str, str], param: str) -> None:
    answer = as_role("viewer").get("usage/labels", **wrong)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_an_admin_says_by_which_labels_a_project_is_recorded(as_role: AsRole, acme: House) -> None:
    path, names = f"projects/{acme.project.id}", ["user", "metadata.team"]
    assert as_role("admin").get(path).json()["usage_labels"] == []
    changed = as_role("admin").patch(path, {"usage_labels": names})
    assert (changed.status_code, changed.json()["usage_labels"]) == (200, names)
    with operator_scope("test"):
        assert Project.objects.get(id=acme.project.id).usage_labels == names
    assert as_role("developer").patch(path, {"usage_labels": []}).status_code == 403
    assert as_role("admin").patch(path, {"name": "renamed"}).json()["usage_labels"] == names
    assert as_role("admin").patch(path, {"usage_labels": []}).json()["usage_labels"] == []


@pytest.mark.parametrize(
    "names",
    [
        ["team"],
        ["metadata."],
        ["metadata.a b"],
        ["user", "user"],
        ["metadata.a", "metadata.b", "metadata.c", "metadata.d"],
        ["user", "metadata.a", "metadata.b", "metadata.c", "metadata.d"],
        ["user\n"],
        [1],
        "user",
        None,
    ],
)
def test_labels_that_cannot_be_are_refused(as_role: AsRole, acme: House, names: Any) -> None:
    path = f"projects/{acme.project.id}"
    answer = as_role("admin").patch(path, {"usage_labels": names})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("usage_labels")
    assert as_role("admin").get(path).json()["usage_labels"] == []
