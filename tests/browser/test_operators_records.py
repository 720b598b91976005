"""What the pages of records offer to operators in the admin, each by the mouse."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from gpu_workers.demo_model.voices import ADAPTERS_FOLDER
from tests.support.chromium.admin import act, choose, new_tenant, sign_in_as_operator
from tests.support.chromium.flows import press
from tests.support.polling import eventually_sync
from tests.support.stack_addresses import LiveStack
from tests.support.webhooks.receiver import Receiver, a_receiver

DRAFT = re.compile("draft", re.IGNORECASE)
pytestmark = [pytest.mark.engine, pytest.mark.stack, pytest.mark.rare]

# What the stack's own manage.py runs: a project with a key and an endpoint, requests of last month
# that came too late for the tier's promise, a payment that nobody understood, dead letters.
_HAVE = """
import json, uuid
from datetime import UTC, datetime, timedelta
from django.contrib.admin.utils import quote
from django.urls import reverse
from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Outcome
from inference.dispatch.queue import usage_entry
from inference.models import DeadLetter
from inference.operations.dead_letters import kept_letters
from inference.usage.collector import dispatch_redis
from tenants.access.api_keys import issue_api_key
from tenants.access.projects import add_project
from tenants.billing.invoicing.drafts import last_month
from tenants.billing.models import ProviderEvent
from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant
from tenants.webhooks.endpoints import add_endpoint
from tests.support.billing.billed_usage import DEAR, FREE, SLOW_HOURS, hours_of, use, use_at
from tests.support.gateways.cast import an_envelope

with operator_scope("test"):
    tenant = Tenant.objects.get(name={name!r})
    project = add_project(tenant, name="web")
    month = last_month()
    use_at(project, hours_of(month, range(SLOW_HOURS), 2), prices=FREE, ttft_ms=60_000)
    begin = datetime.combine(month, datetime.min.time(), UTC)
    use(project, begin + timedelta(days=14), times=3, prices=DEAR)
    event = ProviderEvent.objects.create(
        provider="stripe", event_id=f"evt_{{uuid.uuid4().hex}}", verdict="puzzling", body="{{}}",
        reason="No invoice has this number.",
    )
    with dispatch_redis() as redis:
        for envelope in (an_envelope(pool={model!r}) for _ in range(2)):
            entry = usage_entry(
                envelope, attempt=3, outcome=Outcome.FAILED, error_code="attempts_exhausted"
            )
            fields = {{"envelope": encode(envelope), "record": encode(entry)}}
            redis.xadd(keys.pool_dead_letters(envelope.pool), fields)
        redis.expire(keys.pool_dead_letters({model!r}), 3600)
        DeadLetter.objects.sync(each.facts() for each in kept_letters(redis))
        letters = list(DeadLetter.objects.filter(is_kept=True, pool={model!r})[:2])
    made = {{
        "tenant": tenant,
        "key": issue_api_key(project, name="ci").record,
        "endpoint": add_endpoint(tenant, url={url!r}).endpoint,
        "event": event,
        "letter": letters[0],
        "another letter": letters[1],
    }}
    pages = {{
        name: reverse(
            f"admin:{{record._meta.app_label}}_{{record._meta.model_name}}_change",
            args=[quote(record.pk)],
        )
        for name, record in made.items()
    }}
    print(json.dumps(pages))
"""


@pytest.fixture
def admin(page: Page, live_stack: LiveStack) -> Page:
    return sign_in_as_operator(page, live_stack)


@pytest.fixture
def tenant(admin: Page) -> str:
    return new_tenant(admin, "premium")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with a_receiver() as receiver:
        yield receiver


@pytest.fixture
def pages(tenant: str, live_stack: LiveStack, receiver: Receiver) -> dict[str, Any]:
    """Where the records are, by what they are."""
    return live_stack.made_by(_HAVE.format(name=tenant, url=receiver.url, model=live_stack.model))


def test_keys_endpoints_payments_and_dead_letters(
    admin: Page, pages: dict[str, Any], receiver: Receiver
) -> None:
    admin.goto(pages["key"])
    act(admin, "Rotate", "pk-", overlap_hours="1")
    admin.goto(pages["key"])
    act(admin, "Revoke", "was revoked.")
    admin.goto(pages["endpoint"])
    act(admin, "Send test event", "Test event queued.", button="Send")
    assert eventually_sync(lambda: receiver.requests, 60.0)
    act(admin, "Disable", "Endpoint disabled.")
    act(admin, "Enable", "Endpoint enabled.")
    admin.goto(pages["event"])
    act(admin, "Resolve", "Event resolved.", note="the invoice was paid by hand")
    admin.goto(pages["letter"])
    act(admin, "Retry", "Retry queued.")
    admin.goto(pages["another letter"])
    act(admin, "Discard", "Request and prompt deleted.")


def test_invoices_from_the_draft_to_the_payment(
    admin: Page, tenant: str, pages: dict[str, Any], live_stack: LiveStack
) -> None:
    def drafted() -> None:
        live_stack.manage("invoices", "draft", "--tenant", tenant)
        admin.goto("/admin/billing/invoice/")
        admin.locator("#searchbar").fill(tenant)
        admin.keyboard.press("Enter")
        # Beside it there may be one of this month that was voided.
        row = admin.get_by_role("row").filter(has_text=tenant).filter(has_text=DRAFT)
        row.get_by_role("link").first.click()

    live_stack.manage("set_seller", "Penstock Ltd", "--address", r"1 Mill Lane\nLeeds")
    live_stack.manage("set_billing_mode", tenant, "postpaid")
    why = "Bursts in one hour."
    drafted()
    act(admin, "Hold SLA credit", "SLA credit held.", button="Hold", reason=why)
    act(admin, "Release SLA credit", "SLA credit released.", button="Release", reason=why)
    act(admin, "Discard", "Draft discarded.")
    drafted()
    act(admin, "Hold SLA credit", "SLA credit held.", button="Hold", reason=why)
    act(admin, "Refuse SLA credit", "SLA credit refused.", button="Refuse", reason=why)
    act(admin, "Issue", "Invoice issued.")
    for kind in ("PDF", "CSV"):
        with admin.expect_download() as waiting:
            admin.get_by_role("link", name=re.compile(rf"{kind}$")).first.click()
        assert waiting.value.suggested_filename.endswith(f".{kind.lower()}")
    act(admin, "Void", "Invoice voided.", reason="the wrong buyer")
    drafted()
    act(admin, "Issue", "Invoice issued.")
    act(admin, "Mark as paid", "Invoice marked as paid.", reference="BANK-1")


def test_adapters_their_versions_and_their_traffic(
    admin: Page, tenant: str, live_stack: LiveStack
) -> None:
    def opened(kind: str, name: str) -> None:
        admin.goto(f"/admin/inference/{kind}/")
        admin.locator("#searchbar").fill(name)
        admin.keyboard.press("Enter")
        admin.get_by_role("row").filter(has_text=name).get_by_role("link").first.click()

    for voice in sorted(each.name for each in ADAPTERS_FOLDER.iterdir() if each.is_dir())[:2]:
        live_stack.manage(
            "upload_adapter", tenant, "support", str(ADAPTERS_FOLDER / voice),
            "--model", live_stack.model, "--wait",
        )  # fmt: skip
    slug = tenant.lower().replace(" ", "-")
    name = f"{slug}/support"
    opened("adapter", name)
    act(admin, "Change traffic", "traffic changed.", main="1", canary="2", share="10")
    opened("adapterversion", f"{name}@2")
    act(admin, "Give it all traffic", "answers all requests that name no version.")
    opened("adapterversion", f"{name}@1")
    act(admin, "Archive", "was archived.")
    act(admin, "Delete", "answers no new request", name=f"{name}@1")
    opened("adapter", name)
    act(admin, "Delete", f"{name} was deleted.", name=name)


def test_people_pools_the_snapshot_and_the_tenant_itself(
    admin: Page, tenant: str, pages: dict[str, Any], live_stack: LiveStack
) -> None:
    admin.goto("/admin/tenants/membership/add/")
    choose(admin, "user", live_stack.operator.email)
    choose(admin, "tenant", tenant)
    admin.locator("[name=role]").select_option("viewer")
    admin.locator("[name=_continue]").click()
    admin.locator("[name=role]").select_option("developer")
    admin.locator("[name=_continue]").click()
    expect(admin.locator("[name=role]")).to_have_value("developer")
    admin.locator("a[href$='/delete/']").first.click()
    admin.get_by_role("button", name=re.compile("sure")).click()
    expect(admin.get_by_text("was deleted successfully").first).to_be_visible()

    admin.goto("/admin/tenants/quota/add/")
    choose(admin, "tenant", tenant)
    admin.locator("[name=limit]").select_option("tokens_per_day")
    admin.locator("[name=value]").fill("5k")
    admin.locator("[name=_continue]").click()
    expect(admin.get_by_text("5,000").first).to_be_visible()

    pool = f"spare-{tenant[-8:]}"
    admin.goto("/admin/inference/pool/add/")
    admin.locator("[name=name]").fill(pool)
    admin.locator("[name=_continue]").click()
    act(
        admin, "Serve another model", "decides what it serves.", button="Let the next worker decide"
    )
    admin.goto("/admin/tenants/policyversion/")
    act(admin, "Rebuild snapshot", "Policy snapshot rebuilt", button="Rebuild")

    admin.goto(pages["tenant"])
    act(admin, "Change tier", "moved to standard.", tier="standard")
    act(admin, "Suspend", "was suspended.")
    act(admin, "Resume", "was resumed.")
    act(admin, "Act as a member", "You act as a member", reason="what they asked", role="viewer")
    press(admin, "End now")
    admin.goto(pages["tenant"])
    act(admin, "Close", "was closed.", button="Close permanently", name=tenant)
