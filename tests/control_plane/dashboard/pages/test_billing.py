"""Billing as pages: the balance, transactions, invoices and their files."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from gpu_workers.protocol import keys
from tenants.billing.ledger.credit import grant_promotion, top_up
from tenants.billing.models import Invoice, LedgerTransaction
from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant, Tier
from tenants.models.tenant import BillingMode
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import TwoTenants

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
SECTION = ("billing", "billing/transactions", "billing/invoices")
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def balances(dispatch_redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(dispatch_redis_url) as redis:
        yield redis
        redis.flushdb()


def make_prepaid(tenant: Tenant) -> None:
    with operator_scope("test"):
        Tenant.objects.get(id=tenant.id).set_billing_mode(BillingMode.PREPAID)


@pytest.mark.parametrize("page", SECTION)
@pytest.mark.parametrize("role", ["developer", "viewer"])
def test_whoever_may_not_see_money_is_told_who_may(
    page: str, role: str, signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in(role).get(f"{acme_address}{page}")
    assert answer.status_code == 403
    assert [str(able) for able in answer.context["able"]] == ["owner", "admin", "billing"]


@pytest.mark.parametrize("page", SECTION)
def test_a_suspended_tenants_people_still_read_what_they_owe(
    page: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    assert signed_in("billing").get(f"{acme_address}{page}").status_code == 200


def test_what_requests_have_reserved_is_not_available(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, balances: Redis
) -> None:
    tenant = houses.acme.tenant
    make_prepaid(tenant)
    balances.hset(keys.tenant_balance(str(tenant.id)), mapping={"reserved": 10**8, "settled": 0})
    context = signed_in("billing").get(f"{acme_address}billing").context
    assert context["reserved_nanos"] == 10**8
    assert context["available_nanos"] == context["held"].credit_nanos - 10**8
    balances.delete(keys.tenant_balance(str(tenant.id)))


def test_more_reserved_than_there_is_leaves_nothing(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, balances: Redis
) -> None:
    tenant = houses.acme.tenant
    make_prepaid(tenant)
    balances.hset(keys.tenant_balance(str(tenant.id)), mapping={"reserved": 10**15, "settled": 0})
    assert signed_in("billing").get(f"{acme_address}billing").context["available_nanos"] == 0
    balances.delete(keys.tenant_balance(str(tenant.id)))


def test_a_redis_that_is_down_hides_what_is_reserved_and_nothing_else(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, settings: Any
) -> None:
    make_prepaid(houses.acme.tenant)
    settings.PENSTOCK_DISPATCH_REDIS_URL = "redis://127.0.0.1:1/0"
    answer = signed_in("owner").get(f"{acme_address}billing")
    assert answer.status_code == 200
    assert answer.context["reserved_nanos"] is None
    assert answer.context["held"].credit_nanos == 10**9


def test_credit_that_was_given_shows_what_is_left_and_when_it_ends(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    tenant, soon = houses.acme.tenant, datetime.now(UTC) + timedelta(days=3)
    with operator_scope("test"):
        grant_promotion(tenant.id, 5 * 10**9, reference="welcome", expires_at=soon)
    (left,) = signed_in("billing").get(f"{acme_address}billing").context["promotions"]
    assert (left.left_nanos, left.expires_at) == (5 * 10**9, soon)


def test_an_unpaid_invoice_stands_on_the_first_page(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    answer = signed_in("billing").get(f"{acme_address}billing")
    assert answer.context["unpaid"] == [houses.acme.invoice]


def test_the_prices_of_a_model_are_shown_to_those_who_pay_them(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        Tier.objects.filter(pk=houses.acme.tenant.tier_id).update(price_multiplier="1.5")
    answer = signed_in("billing").get(f"{acme_address}billing")
    rows = {row.model: row for row in answer.context["prices"]}
    assert houses.globex.model.name not in rows
    shown = rows[houses.acme.model.name]
    # A millionth of a dollar for a million tokens, half as much again in this tier.
    assert (shown.prompt, shown.cached, shown.completion) == (1500, 1500, 1500)
    assert "$0.0000015" in answer.content.decode()


def test_transactions_are_named_filtered_and_paged(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        for number in range(30):
            top_up(houses.acme.tenant.id, 10**9, reference=f"transfer {number}")
    client, address = signed_in("billing"), f"{acme_address}billing/transactions"
    days = client.get(address)
    (sum_of_top_ups,) = (row for row in days.context["days"] if row.word == "Top-up")
    assert sum_of_top_ups.sum.count == 31 and "31 transactions" in days.content.decode()
    day = f"{sum_of_top_ups.sum.day:%Y-%m-%d}"
    assert f'href="?kind=top_up&amp;day={day}"' in days.content.decode()
    assert len(client.get(address, {"kind": "top_up", "day": day}).context["rows"]) == 25
    assert client.get(address, {"day": "2020-01-01"}).context["rows"] == []
    first = client.get(address, {"kind": "top_up"})
    assert len(first.context["rows"]) == 25
    assert {row.word for row in first.context["rows"]} == {"Top-up"}
    assert 'href="' + address + "?kind=top_up&amp;cursor=" in first.content.decode()
    second = client.get(
        address, {"kind": "top_up", "cursor": first.context["page"].next_cursor}, headers=HTMX
    )
    assert len(second.context["rows"]) == 6
    assert second.content.decode().lstrip().startswith('<div id="list"')
    usage = client.get(address, {"kind": "usage"}).context["rows"]
    assert [row.transaction.kind for row in usage] == ["usage"]
    assert usage[0].transaction.owed_change_nanos > 0


@pytest.mark.parametrize("kind", ["nothing", "top_up' OR 1=1", "\x00", "x" * 5000])
def test_a_filter_that_is_none_of_ours_narrows_nothing(
    kind: str, signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("billing").get(f"{acme_address}billing/transactions", {"kind": kind})
    assert answer.status_code == 200
    assert list(answer.context["filters"].errors) == ["kind"]


def test_a_note_is_text_whatever_it_says(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        booked = top_up(houses.acme.tenant.id, 1, reference=f"r{SCRIPT}", memo=SCRIPT)
    for page in ("billing/transactions?kind=top_up", f"billing/transactions/{booked.id}"):
        html = signed_in("billing").get(f"{acme_address}{page}").content.decode()
        assert SCRIPT not in html and "&lt;script&gt;" in html


def test_a_transaction_shows_its_entries(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        usage = LedgerTransaction.objects.get(tenant=houses.acme.tenant, kind="usage")
    answer = signed_in("billing").get(f"{acme_address}billing/transactions/{usage.id}")
    words = [word for word, _ in answer.context["entries"]]
    assert sorted(words) == ["Owed", "Usage"]
    assert houses.acme.model.name in answer.content.decode()


def test_invoices_are_filtered_by_state_and_drafts_are_nobodys(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    acme = houses.acme
    with operator_scope("test"):
        draft = Invoice.objects.create(
            tenant=acme.tenant, seller=acme.invoice.seller, period="2026-02-01",
            usage_until=datetime.now(UTC), buyer_name="Acme",
        )  # fmt: skip
    client, address = signed_in("billing"), f"{acme_address}billing/invoices"
    assert client.get(address).context["page"].rows == [acme.invoice]
    assert client.get(address, {"state": "issued"}).context["page"].rows == [acme.invoice]
    assert client.get(address, {"state": "paid"}).context["page"].rows == []
    refused = client.get(address, {"state": "draft"})
    assert list(refused.context["filters"].errors) == ["state"]
    assert draft not in refused.context["page"].rows
    for page in ("", ".pdf", ".csv"):
        assert client.get(f"{address}/{draft.id}{page}").status_code == 404


def test_an_invoice_tells_its_lines_its_sums_and_how_to_pay(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    invoice = houses.acme.invoice
    answer = signed_in("billing").get(f"{acme_address}billing/invoices/{invoice.id}")
    assert [line.id for line in answer.context["lines"]] == [houses.acme.line.id]
    assert answer.context["sums"][-1].nanos == invoice.payable_nanos
    assert answer.context["payment_link"] == ""
    assert str(invoice) in answer.content.decode()


@pytest.mark.parametrize(
    ("url", "is_link"),
    [
        ("https://invoice.stripe.example/i/1", True),
        ("http://invoice.stripe.example/i/1", False),
        ("javascript:alert(1)", False),
        ("//evil.example", False),
    ],
)
def test_only_a_secure_address_is_offered_to_pay_at(
    url: str, is_link: bool, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    invoice = houses.acme.invoice
    with operator_scope("test"):
        Invoice.objects.filter(id=invoice.id).update(payment_url=url)
    html = signed_in("billing").get(f"{acme_address}billing/invoices/{invoice.id}").content.decode()
    assert (f'href="{url}"' in html) is is_link


@pytest.mark.parametrize("ending", ["pdf", "csv"])
def test_the_files_are_those_of_the_api_and_stay_out_of_caches(
    ending: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, invoice = signed_in("billing"), houses.acme.invoice
    path = f"invoices/{invoice.id}.{ending}"
    page = client.get(f"{acme_address}billing/{path}")
    api = client.get(f"/api/v1/tenants/{houses.acme.tenant.id}/{path}")
    assert page.status_code == 200
    assert page["Cache-Control"] == "no-store"
    assert page["Content-Disposition"] == f'attachment; filename="{invoice}.{ending}"'
    assert page["Content-Type"].split(";")[0] == api["Content-Type"].split(";")[0]
    if ending == "csv":
        assert page.content == api.content
    else:
        assert page.content.startswith(b"%PDF")
