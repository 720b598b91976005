"""An invoice in a real browser: found, read, and downloaded as a PDF."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.chromium.flows import Newcomer
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack, pytest.mark.rare]

# What the stack's own manage.py runs: dear requests of last month.
_USE = """
from datetime import UTC, datetime, timedelta
from tenants.access.projects import add_project
from tenants.billing.invoicing.drafts import last_month
from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant
from tests.support.billing.billed_usage import DEAR, use

with operator_scope("test"):
    tenant = Tenant.objects.get(name={name!r})
    month = datetime.combine(last_month(), datetime.min.time(), UTC)
    use(add_project(tenant, name="web"), month + timedelta(days=14), times=3, prices=DEAR)
"""


def invoice_of_last_month(stack: LiveStack, organisation: str) -> None:
    stack.manage("set_seller", "Penstock Ltd", "--address", r"1 Mill Lane\nLeeds")
    stack.manage("set_billing_mode", organisation, "postpaid")
    stack.manage("shell", "-c", _USE.format(name=organisation))
    stack.manage("invoices", "draft", "--tenant", organisation)
    stack.manage("invoices", "issue", "--tenant", organisation)


def test_an_invoice_is_read_and_downloaded(
    page: Page, carol: Newcomer, live_stack: LiveStack, tmp_path: Path
) -> None:
    invoice_of_last_month(live_stack, carol.organisation)
    page.locator(".rail-link[href$='/billing']").click()
    page.get_by_role("link", name="Invoices", exact=True).click()
    row = page.locator("#list tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("$39.00")
    number = row.locator("code").inner_text()
    row.get_by_role("link").click()
    page.wait_for_url(re.compile(r"/billing/invoices/[0-9a-f-]{36}$"))
    expect(page.get_by_role("heading", level=1)).to_have_text(number)
    expect(page.locator("section[aria-labelledby=sums]")).to_contain_text("$39.00")
    expect(page.locator("section[aria-labelledby=lines]")).to_contain_text("web")

    for kind, begins in (("PDF", b"%PDF-"), ("CSV", b"")):
        with page.expect_download() as waiting:
            page.get_by_role("link", name=kind, exact=True).click()
        download = waiting.value
        assert download.suggested_filename.startswith(number)
        download.save_as(file := tmp_path / download.suggested_filename)
        assert file.read_bytes().startswith(begins)
        assert file.stat().st_size > 0
