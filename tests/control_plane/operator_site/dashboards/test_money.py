"""Money by pool, model and tenant: what the page and its files say is what PostgreSQL sums."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from inference.models import PoolUsage
from inference.usage.rollups import Use, add_to_rollups
from tenants.billing.models import PoolCost, PoolHour
from tenants.billing.pricing import price_book
from tenants.isolation.scoping import operator_scope
from tests.control_plane.operator_site.dashboards.csv_files import file_rows
from tests.control_plane.operator_site.records import somebody_who_may
from tests.support.projects import make_key

pytestmark = pytest.mark.django_db
PAGE = "admin:dashboard-money"
HOSTILE = '=cmd|"/c calc"!A1'


@pytest.fixture
def used() -> datetime:
    """Acme and Globex used two pools in this hour; in the next, one of these is idle."""
    hour = timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    with operator_scope("test"):
        uses = []
        for name, pool, tokens in (("Acme", "a", 300), ("Globex", "a", 100), ("Globex", "b", 7)):
            key = make_key(name if pool == "a" else "Globex 2")
            uses.append(
                Use(
                    tenant_id=str(key.tenant_id), project_id=str(key.project_id),
                    api_key_id=str(key.pk), tier="premium", pool=pool,
                    model=HOSTILE if pool == "b" else "m", adapter="",
                    arrived_ms=int(hour.timestamp() * 1000), outcome="completed",
                    prompt_tokens=tokens, completion_tokens=0, cost_nanos=tokens * 1_234_567,
                )
            )  # fmt: skip
        add_to_rollups(uses)
        for pool, micros in (("a", 1_000_000), ("b", 2_345_677)):
            price_book.enter(PoolCost(pool=pool, micros_per_gpu_hour=micros))
        for pool, at in (("a", hour), ("b", hour), ("a", hour + timedelta(hours=1))):
            PoolHour.objects.create(pool=pool, hour=at, worker_ms=3_600_000)
    return hour


def days() -> dict[str, str]:
    today = timezone.now().astimezone(UTC).date()
    return {
        "from": (today - timedelta(days=3)).isoformat(),
        "to": (today + timedelta(days=1)).isoformat(),
    }


def rows_of(client: Client, table: str) -> list[dict[str, str]]:
    return file_rows(client, "money", table, days())


def nanos(row: dict[str, str], column: str) -> int:
    return round(float(row[column]) * 10**9)


def summed(statement: str) -> int:
    with operator_scope("test"), connection.cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("table", ["pool", "model", "tenant"])
def test_each_table_comes_to_what_postgresql_sums(
    operator: Client, used: datetime, table: str
) -> None:
    rows = rows_of(operator, table)
    revenue = summed("SELECT sum(cost_nanos) FROM inference_usagerollup")
    cost = summed(
        "SELECT sum(h.worker_ms * c.micros_per_gpu_hour * 1000 / 3600000)"
        " FROM billing_poolhour h JOIN billing_poolcost c USING (pool)"
    )
    idle = summed("SELECT 1000000 * 1000")
    assert revenue and cost > idle
    assert sum(nanos(row, "revenue") for row in rows) == revenue
    assert sum(nanos(row, "cost") for row in rows) == cost
    assert sum(nanos(row, "idle") for row in rows) == idle
    assert sum(nanos(row, "margin") for row in rows) == revenue - cost
    assert sum(int(row["tokens"]) for row in rows) == 407


def test_the_page_has_all_three_and_says_what_is_idle(operator: Client, used: datetime) -> None:
    html = operator.get(reverse(PAGE), days()).content.decode()
    assert html.count('<table class="dash-table">') == 3
    assert html.count("(idle hours)") == 2, "a pool has its own idle hours"
    # 300 of 400 tokens of an hour that cost a dollar, for $0.3703701.
    acme = html.split('<th scope="row">Acme</th>')[1].split("</tr>")[0]
    assert 'title="$0.3703701">$0.37' in acme and 'title="$0.75">$0.75' in acme
    assert 'dash-minus" title="-$0.3796299"' in acme and 'title="$2.50">$2.50' in acme


def test_usage_without_a_known_cost_is_not_taken_for_free(operator: Client, used: datetime) -> None:
    with operator_scope("test"):
        PoolHour.objects.filter(pool="b").delete()
    html = operator.get(reverse(PAGE), days()).content.decode()
    assert html.count("No GPU cost was known for b:") == 1


def test_a_file_is_no_formula_and_knows_tenants_by_name(operator: Client, used: datetime) -> None:
    assert {row["name"] for row in rows_of(operator, "tenant")} == {
        "Acme", "Globex", "Globex 2", "(idle hours)",
    }  # fmt: skip
    assert f"'{HOSTILE}" in {row["model"] for row in rows_of(operator, "model")}


def test_bad_input_is_said_beside_its_field_and_the_page_stays(
    operator: Client, used: datetime
) -> None:
    page = reverse(PAGE)
    for query, sentence in (
        ({"from": "2026-03-02", "to": "2026-03-01"}, "It must not be after the last day."),
        ({"from": "2020-01-01", "to": "2026-01-01"}, "Ask for at most 366 days at once."),
        ({"from": "soon"}, "Enter a valid date."),
        ({"to": "0001-01-01"}, "Nothing was used"),
        ({"from": "9999-12-31", "to": "9999-12-31"}, "more than a year ahead"),
    ):
        answer = operator.get(page, query)
        assert answer.status_code == 200 and sentence in answer.content.decode()
    file = reverse("admin:dashboard-money-csv", args=["pool"])
    assert operator.get(file, {"from": "soon"}).status_code == 400
    assert operator.get(reverse("admin:dashboard-money-csv", args=["nothing"])).status_code == 404


def test_what_is_not_summed_up_yet_is_said_in_place_of_wrong_figures(
    operator: Client, used: datetime
) -> None:
    with operator_scope("test"):
        PoolUsage.objects.all().delete()
    assert "run manage.py rebuild_usage_sums" in operator.get(reverse(PAGE)).content.decode()
    answer = operator.get(reverse("admin:dashboard-money-csv", args=["pool"]))
    assert (answer.status_code, b"rebuild_usage_sums" in answer.content) == (409, True)


def test_a_panel_that_fails_takes_no_page_down(
    operator: Client, used: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise DatabaseError("canceled")

    monkeypatch.setattr("control_plane.operator_site.dashboards.money.margins", broken)
    answer = operator.get(reverse(PAGE))
    assert answer.status_code == 200
    assert answer.content.decode().count("There are no earlier figures.") == 3


def test_the_address_goes_with_the_fragment(operator: Client, used: datetime) -> None:
    html = operator.get(reverse(PAGE), {"from": "2026-11-01", "to": "2026-11-02"}).content.decode()
    assert "/dashboards/money/panels?from=2026-11-01&amp;to=2026-11-02" in html
    assert "/dashboards/money/tenant.csv?from=2026-11-01&amp;to=2026-11-02" in html


def test_only_who_may_see_costs_sees_it(client: Client) -> None:
    client.force_login(somebody_who_may("view_worker"))
    for address in (reverse(PAGE), reverse("admin:dashboard-money-csv", args=["pool"])):
        assert client.get(address).status_code == 403
