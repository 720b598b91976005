"""Usage by label: whom requests were for, the same on the page, in the file and by the API."""

import csv
import io
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from control_plane.dashboard.pages.usage import labels as page

from inference.usage import labels
from inference.usage.labels import add_to_label_usage
from inference.usage.rollups import Use
from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, House, TwoTenants

pytestmark = pytest.mark.django_db
DAY = date(2026, 3, 10)
RANGE = f"from={DAY}&to={DAY + timedelta(days=1)}"
SCRIPT = "<script>alert(1)</script>"


def use(house: House, nanos: int, day: date = DAY) -> Use:
    return Use(
        tenant_id=str(house.tenant.id),
        project_id=str(house.project.id),
        api_key_id=str(house.key.id),
        model="large",
        adapter="",
        tier="premium",
        arrived_ms=int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp()) * 1000,
        outcome="completed",
        prompt_tokens=10,
        completion_tokens=7,
        cost_nanos=nanos,
    )


@pytest.fixture
def used(houses: TwoTenants) -> None:
    acme, globex = houses.acme, houses.globex
    with operator_scope("test"):
        Project.objects.filter(id=acme.project.id).update(usage_labels=["user", "metadata.team"])
        add_to_label_usage(
            [
                (use(acme, 3_000_000_001), {"user": "alice", "metadata.team": "=cmd()"}),
                (use(acme, 1_000_000_000), {"user": "bob"}),
                (use(acme, 500_000_000, DAY + timedelta(days=1)), {"user": SCRIPT}),
                (use(acme, 77, DAY - timedelta(days=9)), {"user": "earlier"}),
                (use(globex, 9), {"user": CANARY}),
            ]
        )


def shown(answer: Any) -> dict[str, int]:
    assert answer.status_code == 200
    return {row.value: row.cost_nanos for row in answer.context["rows"]}


def test_values_stand_with_what_they_cost_the_dearest_first(
    signed_in: SignIn, acme_address: str, used: None
) -> None:
    client = signed_in("viewer")
    answer = client.get(f"{acme_address}usage/labels?{RANGE}")
    assert list(shown(answer).items()) == [
        ("alice", 3_000_000_001),
        ("bob", 1_000_000_000),
        (SCRIPT, 500_000_000),
    ]
    assert answer.context["total"]["cost_nanos"] == 4_500_000_001
    assert answer.context["total"]["requests"] == 3
    html = answer.content.decode()
    assert SCRIPT not in html and CANARY not in html
    parts = urlsplit(answer.context["call"].split('"')[1])
    told = client.get(f"{parts.path}?{parts.query}").json()["data"]
    assert {row["value"]: row["cost_nanos"] for row in told} == shown(answer)
    of_team = client.get(f"{acme_address}usage/labels?{RANGE}&name=metadata.team")
    assert shown(of_team) == {"=cmd()": 3_000_000_001}
    [row] = of_team.context["rows"]
    log = client.get(row.requests_address)
    assert log.status_code == 200 and log.context["filters"].errors == {}
    assert log.context["filters"].data["label"] == "metadata.team:=cmd()"


def test_the_file_has_all_values_and_no_formula(
    signed_in: SignIn, acme_address: str, used: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "LISTED", 1)
    client = signed_in("viewer")
    answer = client.get(f"{acme_address}usage/labels?{RANGE}")
    assert len(answer.context["rows"]) == 1 and answer.context["has_more"]
    rows = list(csv.DictReader(io.StringIO(client.get(answer.context["csv"]).content.decode())))
    assert [(row["value"], row["cost_dollars"]) for row in rows] == [
        ("alice", "3.000000001"),
        ("bob", "1.000000000"),
        (SCRIPT, "0.500000000"),
    ]
    [row] = csv.DictReader(
        io.StringIO(
            client.get(
                f"{acme_address}usage/labels.csv?{RANGE}&name=metadata.team"
            ).content.decode()
        )
    )
    assert row["value"] == "'=cmd()"


def test_the_rest_of_a_day_with_too_many_values_leads_nowhere(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labels, "MAX_VALUES", 1)
    with operator_scope("test"):
        add_to_label_usage([(use(houses.acme, 5), {"user": name}) for name in ("a", "b", "c")])
    answer = signed_in("viewer").get(f"{acme_address}usage/labels?{RANGE}")
    assert shown(answer) == {"other": 10, "a": 5}
    assert [bool(row.requests_address) for row in answer.context["rows"]] == [False, True]


def test_where_no_project_records_a_label_the_page_says_what_to_set(
    signed_in: SignIn, acme_address: str
) -> None:
    html = signed_in("viewer").get(f"{acme_address}usage/labels").content.decode()
    assert "Record usage by" in html and "metadata.team" in html and "/projects" in html


def test_where_nothing_was_named_in_these_days_it_says_so(
    signed_in: SignIn, acme_address: str, used: None
) -> None:
    answer = signed_in("viewer").get(f"{acme_address}usage/labels?from=2026-01-01&to=2026-01-02")
    assert "No request of these days named this label." in answer.content.decode()
    assert answer.context["name"] == "user"


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        ("from=2026-03-10&to=2026-03-01", "from"),
        ("name=unknown", "name"),
        ("name=metadata.other", "name"),
        ("project_id=nothing", "project_id"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(
    asked: str, wrong: str, signed_in: SignIn, acme_address: str, used: None
) -> None:
    client = signed_in("viewer")
    answer = client.get(f"{acme_address}usage/labels?{asked}")
    assert list(answer.context["filters"].errors) == [wrong]
    assert client.get(f"{acme_address}usage/labels.csv?{asked}").status_code == 200


def test_another_tenants_project_finds_nothing(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, used: None
) -> None:
    asked = f"{RANGE}&name=user&project_id={houses.globex.project.id}"
    answer = signed_in("viewer").get(f"{acme_address}usage/labels?{asked}")
    assert shown(answer) == {} and CANARY not in answer.content.decode()
