"""A past period is rated anew by the price book: differences are posted, once."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpu_workers.protocol.request_id import new_request_id
from inference.models import UsageRecord
from inference.usage.rating.price_book import PriceBook
from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.billing.ledger import credit
from tenants.billing.ledger.balances import balance_of
from tenants.billing.ledger.chain import ledger_problems
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.billing.models import LedgerEntry, Price, PriceCorrection
from tenants.models import ApiKey, Project, Tenant, Tier
from tests.support.commands import refused, run

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
MODEL = "penstock-demo"
YESTERDAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(1)
DAY = YESTERDAY.date()


@pytest.fixture
def api_key(operators_eye: None) -> ApiKey:
    ensure_default_tiers()
    tenant = Tenant.objects.create(name="Acme", tier=Tier.objects.get(name="premium"))
    return issue_api_key(Project.objects.create(tenant=tenant)).record


def use(api_key: ApiKey, *, cost_nanos: int, at: datetime = YESTERDAY, **fields: Any) -> None:
    """A request of 100 prompt and 10 completion tokens, as the collector records it."""
    given = {"outcome": "completed", "tier": "premium", "prompt_tokens": 100, "cached_tokens": 40,
             "completion_tokens": 10} | fields  # fmt: skip
    UsageRecord.objects.create(
        request_id=uuid.UUID(new_request_id(int(at.timestamp() * 1000))),
        tenant_id=api_key.tenant_id, project_id=api_key.project_id, api_key=api_key, pool="pool",
        model=MODEL, api="chat.completions", stream=True, attempt=1, arrived_at=at,
        finished_at=at, cost_nanos=cost_nanos, **given,
    )  # fmt: skip
    charge = UsageCharge(
        tenant_id=api_key.tenant_id, model=MODEL, day=at.date(), nanos=cost_nanos, requests=1
    )
    post_usage([charge], batch_id=uuid.uuid4())


def correct(micros: int, *, begin: datetime | None = None, **fields: Any) -> None:
    """One price for all kinds of tokens: 110 tokens at a dollar a million are 110,000 nanos."""
    given: dict[str, Any] = {
        f"{kind}_micros_per_million_tokens": micros for kind in ("prompt", "cached", "completion")
    }
    correction = PriceCorrection(
        model=MODEL,
        effective_from=begin or YESTERDAY - timedelta(days=2),
        effective_until=YESTERDAY + timedelta(hours=11),
        reason="entered late",
        **(given | fields),
    )
    correction.full_clean()
    correction.save()


def rerate(*more: str) -> list[int]:
    """What it posts, in nano-dollars."""
    days = ("--from", f"{DAY - timedelta(days=1)}", "--to", f"{DAY}")
    return [each["nanos"] for each in run("rerate", *days, *more)]


def owed(api_key: ApiKey) -> tuple[int, int]:
    """And what is prepaid."""
    held = balance_of(api_key.tenant_id)
    return held.owed_nanos, held.prepaid_nanos


def test_what_a_late_price_makes_dearer_is_owed_and_posted_once(api_key: ApiKey) -> None:
    use(api_key, cost_nanos=0)
    use(api_key, cost_nanos=0, at=YESTERDAY - timedelta(days=1))
    assert rerate() == [], "no price held"
    correct(1_000_000)
    assert rerate("--dry-run") == [110_000, 110_000]
    assert owed(api_key) == (0, 0)
    assert rerate() == [110_000, 110_000]
    assert owed(api_key) == (220_000, 0)
    assert rerate() == []
    assert list(ledger_problems()) == []
    revenue = LedgerEntry.objects.filter(account="revenue").order_by("day")
    assert [(entry.model, entry.nanos) for entry in revenue] == [(MODEL, -110_000)] * 2


def test_what_was_too_dear_pays_what_is_owed_and_is_credit_then(api_key: ApiKey) -> None:
    use(api_key, cost_nanos=300_000)
    correct(1_000_000)
    assert rerate() == [-190_000]
    assert owed(api_key) == (110_000, 0)
    correct(0)
    assert rerate() == [-110_000]
    assert owed(api_key) == (0, 0)
    correct(2_000_000)
    assert rerate() == [220_000]
    assert owed(api_key) == (220_000, 0)
    assert UsageRecord.objects.get().cost_nanos == 300_000


def test_what_was_paid_already_is_given_back_as_credit(api_key: ApiKey) -> None:
    from tenants.billing.ledger.credit import pay

    use(api_key, cost_nanos=300_000)
    pay(api_key.tenant_id, 300_000, reference="invoice 1")
    correct(1_000_000)
    assert rerate() == [-190_000]
    assert owed(api_key) == (0, 190_000)


def credit_of(api_key: ApiKey) -> tuple[int, int, int]:
    held = balance_of(api_key.tenant_id)
    return held.promotional_nanos, held.sla_nanos, held.prepaid_nanos


def test_what_credit_has_paid_goes_back_to_that_credit(api_key: ApiKey) -> None:
    """Given credit first: of 300,000 nano-dollars a promotion has paid 100,000, SLA credit
    50,000."""
    tenant_id = api_key.tenant_id
    credit.grant_promotion(tenant_id, 100_000, reference="welcome")
    credit.grant_sla_credit(tenant_id, 50_000, reference="outage")
    credit.top_up(tenant_id, 200_000, reference="payment 1")
    use(api_key, cost_nanos=300_000)
    assert credit_of(api_key) == (0, 0, 50_000)
    correct(1_000_000)
    assert rerate() == [-190_000]
    assert credit_of(api_key) == (100_000, 50_000, 90_000)
    correct(0)
    assert rerate() == [-110_000]
    assert credit_of(api_key) == (100_000, 50_000, 200_000)
    assert list(ledger_problems()) == []


def test_a_gift_of_one_month_is_not_taken_for_what_was_paid_in_another(api_key: ApiKey) -> None:
    """Months before a promotion has paid; yesterday the tenant did, and gets its money back."""
    credit.grant_promotion(api_key.tenant_id, 100_000, reference="welcome")
    months_ago = UsageCharge(
        tenant_id=api_key.tenant_id,
        model=MODEL,
        day=DAY - timedelta(days=95),
        nanos=100_000,
        requests=1,
    )
    post_usage([months_ago], batch_id=uuid.uuid4())
    credit.top_up(api_key.tenant_id, 110_000, reference="payment 1")
    use(api_key, cost_nanos=110_000)
    correct(0)
    assert rerate() == [-110_000]
    assert credit_of(api_key) == (0, 0, 110_000)


def test_what_was_written_off_is_not_given_back(api_key: ApiKey) -> None:
    use(api_key, cost_nanos=300_000)
    credit.write_off(api_key.tenant_id, 300_000, reference="case-3", memo="insolvent")
    correct(1_000_000)
    assert rerate() == [-190_000]
    assert (owed(api_key), credit_of(api_key)) == ((0, 0), (0, 0, 0))


def test_goodwill_for_what_turns_out_to_cost_nothing_stays_a_gift(api_key: ApiKey) -> None:
    credit.top_up(api_key.tenant_id, 300_000, reference="payment 1")
    use(api_key, cost_nanos=300_000)
    credit.adjust(api_key.tenant_id, -200_000, reference="ticket-9", memo="goodwill")
    correct(0)
    assert rerate() == [-300_000]
    assert credit_of(api_key) == (200_000, 0, 300_000)


def test_usage_that_comes_late_is_rated_with_the_next_run(api_key: ApiKey) -> None:
    correct(1_000_000)
    use(api_key, cost_nanos=0)
    assert rerate() == [110_000]
    use(api_key, cost_nanos=0)
    assert rerate() == [110_000]


def test_what_was_never_run_stays_free(api_key: ApiKey) -> None:
    use(api_key, cost_nanos=0, outcome="refused")
    use(api_key, cost_nanos=0, outcome="expired")
    correct(1_000_000)
    assert rerate() == []


def test_the_multiplier_is_the_one_that_the_tier_had(api_key: ApiKey) -> None:
    use(api_key, cost_nanos=0)
    Tier.objects.filter(name="premium").update(price_multiplier="9")
    correct(1_000_000)
    assert rerate() == [110_000]


def test_the_correction_of_one_tier_is_for_that_tier(api_key: ApiKey) -> None:
    use(api_key, cost_nanos=0)
    use(api_key, cost_nanos=0, tier="free")
    correct(1_000_000)
    correct(3_000_000, tier="free")
    assert rerate() == [110_000 + 330_000]


def test_a_book_that_says_what_was_charged_adjusts_nothing(api_key: ApiKey) -> None:
    fields = ("prompt", "cached", "completion")
    Price.objects.create(
        model=MODEL,
        batch_discount_permille=500,
        **{f"{field}_micros_per_million_tokens": 7 for field in fields},
    )
    book = PriceBook()
    now = datetime.now(UTC) + timedelta(seconds=1)
    of = {"model": MODEL, "adapter": "", "tier": "premium", "at": now}
    assert book.prices(service_class="interactive", **of).permille == 1000  # type: ignore[arg-type]
    assert book.prices(service_class="batch", **of).permille == 500  # type: ignore[arg-type]


def test_days_that_are_not_over_are_refused() -> None:
    today = str(datetime.now(UTC).date())
    for first, last in ((today, today), (str(DAY), str(DAY - timedelta(days=1)))):
        assert "past days" in refused("rerate", "--from", first, "--to", last)
