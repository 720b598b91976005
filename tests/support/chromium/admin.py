"""What operators do again and again in their admin: sign in, make a tenant, use an action."""

import re
import uuid

from playwright.sync_api import Page, expect

from tests.support.chromium.flows import press
from tests.support.stack_addresses import LiveStack


def sign_in_as_operator(page: Page, stack: LiveStack) -> Page:
    page.goto("/admin/")
    page.locator("[name=username]").fill(stack.operator.email)
    page.locator("[name=password]").fill(stack.operator.password)
    page.locator("#login-form [type=submit]").click()
    page.wait_for_url("**/admin/")
    return page


def new_tenant(admin: Page, tier: str) -> str:
    """The name of a new tenant, whose page is open."""
    name = f"Cleo {uuid.uuid4().hex[:8]}"
    admin.goto("/admin/tenants/tenant/add/")
    admin.locator("[name=name]").fill(name)
    admin.locator("[name=tier]").select_option(label=tier)
    admin.locator("[name=_continue]").click()
    expect(admin.get_by_role("heading", name="Money")).to_be_visible()
    return name


def fill_in(admin: Page, **fields: str) -> None:
    """Fill in fields by name, or choose in them."""
    for name, value in fields.items():
        field = admin.locator(f"[name={name}]")
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)


def act(admin: Page, action: str, told: str, *, button: str = "", **fields: str) -> None:
    """Choose an action of the page that is open, answer what it asks, and read what it did."""
    admin.get_by_role("link", name=re.compile(rf"{action}$")).first.click()
    fill_in(admin, **fields)
    press(admin, button or action)
    expect(admin.get_by_text(told).first).to_be_visible()


def choose(admin: Page, field: str, text: str) -> None:
    """Choose a record by what is typed, where there could be thousands."""
    admin.locator(f"[name={field}] + .select2 .select2-selection").click()
    admin.locator(".select2-search__field").last.fill(text)
    admin.get_by_role("option", name=re.compile(re.escape(text))).first.click()
