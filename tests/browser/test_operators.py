"""What operators do with a tenant's money, prices and workers, by the mouse, in their admin."""

import re
import uuid

import pytest
from playwright.sync_api import Page, expect

from tests.support.chromium.admin import fill_in, new_tenant, sign_in_as_operator
from tests.support.chromium.flows import press
from tests.support.stack_addresses import LiveStack

pytestmark = [pytest.mark.engine, pytest.mark.stack]
MAIN = "#content, main"


@pytest.fixture
def admin(page: Page, live_stack: LiveStack) -> Page:
    """The admin, with an operator signed in."""
    return sign_in_as_operator(page, live_stack)


@pytest.fixture
def tenant(admin: Page) -> str:
    """The name of a new tenant, whose page is open."""
    return new_tenant(admin, "standard")


def book(admin: Page, verb: str, amount: str, **more: str) -> None:
    """Fill in a booking, read what was understood, and book it."""
    admin.get_by_role("link", name=verb, exact=True).click()
    admin.locator("[name=amount]").fill(amount)
    admin.locator("[name=reference]").fill(f"{verb} {uuid.uuid4().hex[:8]}")
    fill_in(admin, **more)
    press(admin, "Continue")
    expect(admin.get_by_text("Reference:")).to_be_visible()
    press(admin, "Book")
    expect(admin.get_by_text("is booked.")).to_be_visible()


def test_an_operator_books_a_tenants_money(admin: Page, tenant: str) -> None:
    book(admin, "Top up", "$250")
    expect(admin.get_by_text("prepaid $250.00.")).to_be_visible()
    book(admin, "Grant credit", "10", last_day="2999-12-31")
    book(admin, "Refund", "50")
    book(admin, "Adjust", "20", direction="more", memo="a report by hand")
    book(admin, "Write off", "5", memo="a ticket")
    book(admin, "Record payment", "15")
    expect(
        admin.get_by_text(
            "Credit $210.00: promotional $10.00, for missed promises $0.00, prepaid $200.00. "
            "Owed $0.00."
        )
    ).to_be_visible()
    admin.get_by_role("link", name="Billing mode").click()
    admin.locator("[name=mode]").select_option("prepaid")
    press(admin, "Set")
    expect(admin.get_by_text("Prepaid: usage draws on credit")).to_be_visible()
    admin.get_by_role("link", name="Re-rate").click()
    admin.locator("[name=first]").fill("2026-10-01")
    admin.locator("[name=last]").fill("2026-10-31")
    press(admin, "Continue")
    expect(admin.get_by_text("Nothing to post")).to_be_visible()
    admin.get_by_role("link", name=re.compile("History$")).click()
    expect(admin.locator(MAIN).first).to_contain_text(tenant)


def test_an_operator_enters_a_price_and_ends_it(admin: Page, live_stack: LiveStack) -> None:
    tier = admin.locator("[name=tier]")
    admin.goto("/admin/billing/price/add/")
    admin.locator("[name=model]").select_option(index=1)
    tier.select_option(index=1)
    for kind, dollars in (("prompt", "0.15"), ("cached", "0.02"), ("completion", "$0.60")):
        admin.locator(f"[name={kind}_micros_per_million_tokens]").fill(dollars)
    # Long after everybody's tests.
    year = 2100 + uuid.uuid4().int % 800
    admin.locator("[name=effective_from_0]").fill(f"{year}-01-31")
    admin.locator("[name=effective_from_1]").fill("12:00:00")
    admin.locator("[name=_save]").click()
    expect(admin.get_by_text("$0.15 prompt, $0.02 cached, $0.60 completion")).to_be_visible()
    press(admin, "Enter")
    admin.get_by_role("row").filter(has_text=str(year)).get_by_role("link").first.click()
    admin.get_by_role("link", name=re.compile("End$")).first.click()
    admin.locator("[name=at]").fill(f"{year}-02-28 12:00")
    press(admin, "End the price")
    expect(admin.get_by_text(f"28 February {year}, 12:00 UTC")).to_be_visible()


def test_a_worker_is_drained_to_stay_and_resumed(admin: Page, live_stack: LiveStack) -> None:
    admin.goto("/admin/dashboards/fleet/")
    drain = admin.get_by_role("link", name=re.compile("^Drain ")).first
    worker = (drain.get_attribute("aria-label") or "").removeprefix("Drain ")
    drain.click()
    admin.locator("[name=stays]").check()
    press(admin, "Drain")
    admin.goto("/admin/dashboards/fleet/")
    row = admin.get_by_role("row").filter(has_text=worker).first
    expect(row).to_contain_text("drained")
    admin.get_by_role("link", name=f"Resume {worker}").click()
    press(admin, "Resume")
    admin.goto("/admin/dashboards/fleet/")
    expect(row).to_contain_text("ready")
    answer = live_stack.ask(live_stack.acme_key, "Are you there?", max_tokens=1)
    assert answer.status_code == 200
