"""The usage explorer: its figures are the API's and those of plain SQL, to the nano-dollar."""

import csv
import io
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from control_plane.dashboard.charts.chart import exact_dollars
from control_plane.dashboard.pages.usage.explorer import DRAWN, OTHER
from django.db import connection

from inference.usage.rollups import Use, add_to_rollups
from tenants.access.projects import add_project
from tenants.isolation.scoping import operator_scope
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, House, TwoTenants

pytestmark = pytest.mark.django_db
FIRST = date(2026, 3, 10)
DAYS = 5
RANGE = f"from={FIRST}&to={FIRST + timedelta(days=DAYS - 1)}"


def used(house: House, day: date, nanos: int, **changes: Any) -> Use:
    fields: dict[str, Any] = {
        "tenant_id": str(house.tenant.id),
        "project_id": str(house.project.id),
        "api_key_id": str(house.key.id),
        "model": "large",
        "adapter": "",
        "tier": "premium",
        "arrived_ms": int(datetime(day.year, day.month, day.day, 23, 59, tzinfo=UTC).timestamp())
        * 1000,
        "outcome": "completed",
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "cost_nanos": nanos,
    }
    return Use(**(fields | changes))


@pytest.fixture
def models(houses: TwoTenants) -> list[str]:
    """Ten models, the first dearest, used each day of the range and of the one before."""
    names = [f"model-{number}" for number in range(10)]
    uses = [
        used(
            houses.acme, FIRST + timedelta(days=day), (10 - place) * 10**9 + day * 1001, model=name
        )
        for place, name in enumerate(names)
        for day in range(-DAYS, DAYS)
    ]
    uses.append(used(houses.globex, FIRST, 77 * 10**9, model=f"{CANARY}-model"))
    with operator_scope("test"):
        add_to_rollups(uses)
    return names


def by_sql(house: House, expression: str) -> int:
    with operator_scope("test"), connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {expression} FROM inference_dailyusage WHERE tenant_id = %s"  # noqa: S608
            " AND day BETWEEN %s AND %s",
            [house.tenant.id, FIRST, FIRST + timedelta(days=DAYS - 1)],
        )
        return int(cursor.fetchone()[0])


def drawn(answer: Any) -> dict[str, list[int]]:
    return {series.name: list(series.values) for series in answer.context["chart"].series}


def summed(values: Iterable[list[int]]) -> int:
    return sum(map(sum, values))


def test_every_figure_is_that_of_plain_sql_and_of_the_api(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, models: list[str]
) -> None:
    client = signed_in("owner")
    answer = client.get(f"{acme_address}usage?{RANGE}&by=model")
    total = by_sql(houses.acme, "sum(cost_nanos)")
    assert answer.context["total"] == total == answer.context["total_before"] + 10 * DAYS**2 * 1001
    assert summed(drawn(answer).values()) == total
    rows = answer.context["rows"]
    assert sum(row.group.cost_nanos for row in rows) == total
    assert [row.group.name for row in rows] == models
    asked = re.search(r'curl "([^"]+)"', answer.context["curl"])
    assert asked is not None
    parts = urlsplit(asked[1])
    told = client.get(f"{parts.path}?{parts.query}&limit=100").json()
    assert told["total_cost_nanos"] == total
    by_api = [each["cost_nanos"] for each in told["data"] if each["model"] == models[0]]
    assert sum(by_api) == rows[0].group.amount
    html = answer.content.decode()
    assert exact_dollars(rows[0].group.amount) in html and CANARY not in html
    assert "Day (UTC)" in html


def test_the_largest_are_drawn_and_the_rest_is_other(
    signed_in: SignIn, acme_address: str, models: list[str]
) -> None:
    series = drawn(signed_in("owner").get(f"{acme_address}usage?{RANGE}&by=model"))
    assert list(series) == [*models[:DRAWN], OTHER]
    assert series[OTHER] == [6 * 10**9 + 3 * day * 1001 for day in range(DAYS)]


@pytest.mark.parametrize(
    ("measure", "expression"),
    [
        ("tokens", "sum(prompt_tokens + completion_tokens)"),
        ("prompt", "sum(prompt_tokens)"),
        ("requests", "sum(requests)"),
        ("failed", "sum(failed)"),
    ],
)
def test_each_measure_is_what_it_says(
    measure: str,
    expression: str,
    signed_in: SignIn,
    houses: TwoTenants,
    acme_address: str,
    models: list[str],
) -> None:
    answer = signed_in("owner").get(f"{acme_address}usage?{RANGE}&measure={measure}")
    assert answer.context["total"] == by_sql(houses.acme, expression)
    assert summed(drawn(answer).values()) == by_sql(houses.acme, expression)


def test_two_groupings_name_both(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, models: list[str]
) -> None:
    answer = signed_in("owner").get(
        f"{acme_address}usage?{RANGE}&by=project&then_by=adapter&model=model-0"
    )
    [row] = answer.context["rows"]
    assert row.group.name == f"{houses.acme.project.name} / no adapter"
    assert row.group.key == (houses.acme.project.id, "")
    assert '<th scope="col">Project / Adapter</th>' in answer.content.decode()


def test_cumulated_ends_at_the_total_and_the_period_before_stands_beside_it(
    signed_in: SignIn, acme_address: str, models: list[str]
) -> None:
    answer = signed_in("owner").get(f"{acme_address}usage?{RANGE}&cumulated=on&compared=on")
    series = drawn(answer)
    assert series["all"][-1] == answer.context["total"]
    assert series["the period before"][-1] == answer.context["total_before"]


def test_projects_of_one_name_are_told_apart(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    acme = houses.acme
    with operator_scope("test"):
        others = [add_project(acme.tenant, name=name) for name in (OTHER, "=cmd()")]
        add_to_rollups([used(acme, FIRST, 5, project_id=str(project.id)) for project in others])
    client = signed_in("owner")
    names = {
        row.group.name
        for row in client.get(f"{acme_address}usage?{RANGE}&by=project").context["rows"]
    }
    assert "=cmd()" in names and OTHER not in names
    assert any(name.startswith(f"{OTHER} (") for name in names)


def test_the_file_has_the_table_and_no_formula(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        project = add_project(houses.acme.tenant, name="=HYPERLINK(1)")
        add_to_rollups([used(houses.acme, FIRST, 1_234_567_891, project_id=str(project.id))])
    answer = signed_in("owner").get(f"{acme_address}usage.csv?{RANGE}&by=project")
    assert answer["Content-Type"].startswith("text/csv")
    [row] = csv.DictReader(io.StringIO(answer.content.decode()))
    assert row["name"] == "'=HYPERLINK(1)" and row["project_id"] == str(project.id)
    assert row["cost_dollars"] == "1.234567891" and row["requests"] == "1"


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        ("from=2026-03-10&to=2026-03-01", "from"),
        ("from=2024-01-01&to=2026-03-01", "from"),
        ("from=2026-03-01&to=2026-04-01&granularity=hour", "from"),
        ("from=yesterday", "from"),
        ("to=0001-01-03", "to"),
        ("from=0001-01-01&to=2000-01-03&compared=on", "from"),
        ("granularity=week", "granularity"),
        ("api_key_id=nothing", "api_key_id"),
        ("project_id=nothing", "project_id"),
        ("by=nothing", "by"),
        ("by=tenant", "by"),
        ("by=model&then_by=model", "then_by"),
        ("measure=nothing", "measure"),
        ("model=" + "x" * 300, "model"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field_and_the_rest_stays(
    asked: str, wrong: str, signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("owner").get(f"{acme_address}usage?{asked}")
    assert answer.status_code == 200
    assert list(answer.context["filters"].errors) == [wrong]
    assert "field-error" in answer.content.decode() and 'id="report"' in answer.content.decode()


def test_another_tenants_key_and_project_find_nothing(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, models: list[str]
) -> None:
    client, theirs = signed_in("owner"), houses.globex
    answer = client.get(f"{acme_address}usage?{RANGE}&api_key_id={theirs.key.id}")
    assert answer.context["total"] == 0 and answer.context["rows"] == []
    assert "No usage in these days" in answer.content.decode()
    other = client.get(f"{acme_address}usage?{RANGE}&project_id={theirs.project.id}")
    assert CANARY not in other.content.decode()


def test_the_range_in_force_stands_in_its_fields(signed_in: SignIn, acme_address: str) -> None:
    client, today = signed_in("viewer"), datetime.now(UTC).date()
    for asked, first in (("", 29), ("days=7", 6), ("days=much", 29), (f"to={today}&days=2", 1)):
        html = client.get(f"{acme_address}usage?{asked}").content.decode()
        for name, day in (("from", today - timedelta(days=first)), ("to", today)):
            field = re.search(rf'<input type="date" name="{name}" value="([^"]*)"', html)
            assert field is not None and field[1] == str(day), (asked, name)


def test_what_is_in_use_is_shown_and_the_rest_is_behind_more_filters(
    signed_in: SignIn, acme_address: str
) -> None:
    def behind(asked: str) -> str:
        html = signed_in("viewer").get(f"{acme_address}usage?{asked}").content.decode()
        found = re.search(r'<details class="filters-more">(.*?)</details>', html, re.DOTALL)
        assert found is not None
        return found[1]

    assert 'name="tier"' in behind("") and 'name="project_id"' not in behind("")
    assert 'name="tier"' not in behind("tier=premium")


def test_one_range_its_filters_and_grouping_go_from_page_to_page(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, project = signed_in("viewer"), houses.acme.project
    asked = f"{RANGE}&project_id={project.id}&model=large&by=model&compared=on&tier=premium"
    at = f"{acme_address}usage?{asked}"
    for page in ("requests", "refusals", "labels", "usage"):
        tabs = {tab.word.lower(): tab for tab in client.get(at).context["tabs"]}
        at = tabs[page].address
        answer = client.get(at)
        assert answer.status_code == 200 and answer.context["filters"].errors == {}, page
        assert [tab.word.lower() for tab in answer.context["tabs"] if tab.is_current] == [page]
    shown = client.get(at).context["asked"]
    assert (shown.query.first, shown.query.last) == (FIRST, FIRST + timedelta(days=DAYS - 1))
    assert shown.query.project_id == project.id and shown.is_compared
    assert [each.value for each in shown.query.group_by] == ["model"]
    # What a page on the way has no field for is lost, and nothing else.
    assert shown.query.tier is None and shown.query.model is None
    log = client.get(f"{acme_address}usage?{asked}").context["tabs"][2].address
    assert f"before={FIRST + timedelta(days=DAYS)}" in log and "tier=premium" in log


def test_a_group_leads_to_its_requests(
    signed_in: SignIn, acme_address: str, models: list[str]
) -> None:
    client = signed_in("viewer")
    [row, *_] = client.get(f"{acme_address}usage?{RANGE}&by=model").context["rows"]
    assert f"model={models[0]}" in row.requests_address
    assert client.get(row.requests_address).context["filters"].errors == {}
    # No filter of the log finds what has no adapter.
    [row] = client.get(f"{acme_address}usage?{RANGE}&by=adapter").context["rows"]
    assert row.requests_address == ""


def test_hours_that_have_not_begun_are_not_drawn_as_nothing_used(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    today = datetime.now(UTC).date()
    with operator_scope("test"):
        add_to_rollups([used(houses.acme, today - timedelta(days=1), 10**9)])
    asked = f"from={today - timedelta(days=1)}&to={today + timedelta(days=1)}"
    for period, least in (("hour", 25), ("day", 2)):
        before = datetime.now(UTC)
        answer = signed_in("viewer").get(f"{acme_address}usage?{asked}&granularity={period}")
        moments = answer.context["chart"].moments
        assert least <= len(moments) == len(drawn(answer)["all"])
        last = moments[-1]
        assert last <= (datetime.now(UTC) if isinstance(last, datetime) else before.date())
        compared = f"{asked}&granularity={period}&compared=on"
        series = drawn(signed_in("viewer").get(f"{acme_address}usage?{compared}"))
        assert len(series["all"]) == len(series["the period before"]) >= least


def test_hours_add_up_to_days_and_are_told_as_moments(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, models: list[str]
) -> None:
    client = signed_in("viewer")
    answer = client.get(f"{acme_address}usage?{RANGE}&by=model&granularity=hour")
    series = drawn(answer)
    assert summed(series.values()) == by_sql(houses.acme, "sum(cost_nanos)")
    assert {len(values) for values in series.values()} == {24 * DAYS}
    # All that was used came in the last hour of each day.
    assert [place for place, nanos in enumerate(series[models[0]]) if nanos] == [
        24 * day + 23 for day in range(DAYS)
    ]
    html = answer.content.decode()
    assert f'<time datetime="{FIRST}T00:00:00+00:00">' in html and "Spend by hour" in html
    asked = re.search(r'curl "([^"]+)"', answer.context["curl"])
    assert asked is not None
    parts = urlsplit(asked[1])
    told = client.get(f"{parts.path}?{parts.query}&limit=100").json()
    assert told["total_cost_nanos"] == answer.context["total"]
