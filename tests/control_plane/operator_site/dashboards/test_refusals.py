"""Refusals over all tenants: what the page and its files say is what PostgreSQL sums."""

from datetime import UTC

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from inference.models.refusal import DailyRefusals
from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tests.control_plane.operator_site.dashboards.csv_files import file_rows
from tests.control_plane.operator_site.records import somebody_who_may
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db
PAGE = "admin:dashboard-refusals"


@pytest.fixture
def refused() -> tuple[Project, Project]:
    today = timezone.now().astimezone(UTC).date()
    with operator_scope("test"):
        acme, globex = make_project("Acme", "premium"), make_project("Globex", "premium")
        for project, model, code, limit, count in (
            (acme, "m", "rate_limit_exceeded", "requests_per_minute", 1998),
            (globex, "m", "rate_limit_exceeded", "requests_per_minute", 1000),
            (globex, "+n", "model_not_found", "", 2),
        ):
            DailyRefusals.objects.create(
                tenant=project.tenant, day=today, model=model, code=code, limit=limit,
                scope="tenant" if limit else "", count=count,
            )  # fmt: skip
    return acme, globex


def rows_of(client: Client, table: str, **asked: str) -> list[dict[str, str]]:
    return file_rows(client, "refusals", table, asked)


@pytest.mark.parametrize("table", ["code", "model", "tenant"])
def test_each_table_comes_to_what_postgresql_sums(
    operator: Client, refused: tuple[Project, Project], table: str
) -> None:
    with operator_scope("test"), connection.cursor() as cursor:
        cursor.execute("SELECT sum(count), count(DISTINCT code) FROM inference_dailyrefusals")
        refusals, codes = map(int, cursor.fetchone())
    rows = rows_of(operator, table)
    assert sum(int(row["refusals"]) for row in rows) == refusals == 3000
    assert len(rows) == codes == 2
    assert int(rows[0]["refusals"]) > int(rows[1]["refusals"]), "the most first"


def test_the_page_names_tenants_and_shares(
    operator: Client, refused: tuple[Project, Project]
) -> None:
    html = operator.get(reverse(PAGE)).content.decode()
    acme = html.split('<th scope="row">Acme</th>')[1].split("</tr>")[0]
    assert "1,998" in acme and "67 %" in acme
    rare = html.split('<th scope="row">model_not_found</th>')[1].split("</tr>")[0]
    assert "&lt; 1 %" in rare
    assert "requests_per_minute, tenant" in html and "3,000" in html
    assert reverse("admin:inference_deadletter_changelist") in html


def test_filters_narrow_page_and_file_and_bad_ones_say_so(
    operator: Client, refused: tuple[Project, Project]
) -> None:
    _, globex = refused
    tenant_id = str(globex.tenant_id)
    (first, second) = rows_of(operator, "code", tenant_id=tenant_id)
    assert (first["refusals"], second["refusals"]) == ("1000", "2")
    (only,) = rows_of(operator, "tenant", code="model_not_found")
    assert only["tenant"] == "Globex"
    assert rows_of(operator, "model", model="+n") == [{"model": "'+n", "refusals": "2"}]
    html = operator.get(reverse(PAGE), {"tenant_id": tenant_id}).content.decode()
    assert '<th scope="row">Acme</th>' not in html
    html = operator.get(reverse(PAGE), {"tenant_id": "Globex"}).content.decode()
    assert "Enter a valid UUID." in html and '<th scope="row">Acme</th>' in html
    html = operator.get(reverse(PAGE), {"model": "x\x00y"}).content.decode()
    assert "Null characters are not allowed." in html


def test_without_refusals_it_says_so_and_who_may_not_look_gets_nothing(
    operator: Client, client: Client
) -> None:
    assert "No request was refused in these days." in operator.get(reverse(PAGE)).content.decode()
    client.force_login(somebody_who_may("view_worker"))
    assert client.get(reverse(PAGE)).status_code == 403
