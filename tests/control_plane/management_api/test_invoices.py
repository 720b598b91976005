"""Invoices as a tenant's people and keys see them."""

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.models import Invoice, InvoiceLine
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.permissions import Role
from tests.support.api_client import ApiClient
from tests.support.billing.billed_usage import DEAR, OCTOBER, use
from tests.support.two_tenants import CANARY, House

AsRole = Callable[[str], ApiClient]
WithScopes = Callable[..., ApiClient]


@pytest.fixture
def october(acme: House) -> Invoice:
    """Issued, of a model that Acme asked seven times."""
    with operator_scope("test"):
        use(acme.project, times=7, prices=DEAR)
        made = draft_invoice(acme.tenant, OCTOBER)
        assert made is not None
        return invoices.issue(made.id)


@pytest.mark.parametrize("role", Role)
def test_owners_admins_and_billing_see_invoices(as_role: AsRole, acme: House, role: Role) -> None:
    may = role in {Role.OWNER, Role.ADMIN, Role.BILLING}
    paths = ["invoices", f"invoices/{acme.invoice.id}", f"invoices/{acme.invoice.id}.pdf"]
    answers = [as_role(role).get(path) for path in paths]
    assert [answer.status_code for answer in answers] == [200 if may else 403] * 3


def test_an_invoice_is_listed_and_read_with_its_lines(
    with_scopes: WithScopes, october: Invoice, acme: House
) -> None:
    client = with_scopes("admin")
    first = client.get("invoices", limit=1).json()
    second = client.get("invoices", limit=1, cursor=first["next_cursor"]).json()
    listed = first["data"] + second["data"]
    assert [row["number"] for row in listed] == [october.number, acme.invoice.number]
    # Of 91 dollars the credit that it had paid one.
    assert (listed[0]["period"], listed[0]["amount_due"]) == ("2026-10", "90.00")
    one = client.get(f"invoices/{october.id}").json()
    assert one["seller"]["name"] == "Penstock Ltd"
    assert one["due_nanos"] == sum(line["amount_nanos"] for line in one["lines"])
    assert [(line["kind"], line.get("requests")) for line in one["lines"]] == [
        ("usage", 7),
        ("paid_by_credit", None),
    ]


def test_a_line_is_traced_to_its_records(as_role: AsRole, october: Invoice) -> None:
    client = as_role("billing")
    with operator_scope("test"):
        line = october.lines.get(kind="usage")
    path = f"invoices/{october.id}/lines/{line.id}/usage"
    rows: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get(path, limit=3, **cursor).json()
        rows += page["data"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len({row["request_id"] for row in rows}) == 7
    assert sum(row["cost_nanos"] for row in rows) == line.amount_nanos
    table = client.get(f"{path}.csv")
    assert table["Content-Type"] == "text/csv; charset=utf-8"
    read = list(csv.DictReader(io.StringIO(table.content.decode())))
    assert sum(int(row["cost_nanos"]) for row in read) == line.amount_nanos


def test_the_files_are_for_keeping(as_role: AsRole, october: Invoice) -> None:
    pdf = as_role("owner").get(f"invoices/{october.id}.pdf")
    assert pdf["Content-Type"] == "application/pdf" and pdf.content.startswith(b"%PDF-")
    assert pdf["Content-Disposition"] == f'attachment; filename="{october.number}.pdf"'
    table = as_role("owner").get(f"invoices/{october.id}.csv")
    assert f'"{october.number}.csv"' in table["Content-Disposition"]
    assert table.content.decode().startswith("invoice,kind,month,")
    http = as_role("owner").http
    refused = http.get(
        f"/api/v1/tenants/{october.tenant_id}/invoices/{october.id}.pdf",
        headers={"accept": "application/xml"},
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (406, "not_acceptable")


def test_a_draft_is_nobodys_to_see(as_role: AsRole, acme: House) -> None:
    with operator_scope("test"):
        use(acme.project, prices=DEAR)
        draft = draft_invoice(acme.tenant, OCTOBER)
        assert draft is not None
        line = draft.lines.get(kind="usage")
    client = as_role("owner")
    assert [row["number"] for row in client.get("invoices").json()["data"]] == [acme.invoice.number]
    for path in ("", ".pdf", ".csv", f"/lines/{line.id}/usage", f"/lines/{line.id}/usage.csv"):
        assert client.get(f"invoices/{draft.id}{path}").status_code == 404
    # PostgreSQL itself shows the web role none.
    with tenant_scope(acme.tenant.id), connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM billing_invoice WHERE state = 'draft'")
        assert cursor.fetchone() == (0,)


def test_another_tenants_invoice_is_not_there(as_role: AsRole, acme: House, globex: House) -> None:
    client = as_role("owner")
    for suffix in ("", ".pdf", ".csv", f"/lines/{globex.line.id}/usage"):
        answer = client.get(f"invoices/{globex.invoice.id}{suffix}")
        assert answer.status_code == 404 and CANARY not in answer.content.decode()
    mixed = client.get(f"invoices/{acme.invoice.id}/lines/{globex.line.id}/usage")
    assert mixed.status_code == 404
    with tenant_scope(acme.tenant.id):
        assert not InvoiceLine.objects.filter(id=globex.line.id).exists()
