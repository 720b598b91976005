"""What was used before the demo's first day, so that there is something to look at: requests of
both tenants, recorded as the collector records what workers say; those of last month billed as at
any month's end."""

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

from django.db import transaction
from msgspec.structs import replace

from control_plane.demo.people import FEATURES, LABELS, USERS, demand
from control_plane.demo.tenants import DEMO_MODELS, DEMO_PRICE
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Api, Envelope, Outcome, TokenUsage
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.usage import UsageEntry
from inference.dispatch.queue import usage_entry
from inference.models import UsageRecord
from inference.proofs import Prover
from inference.usage.ingest import record_entries
from inference.usage.rating.admitted import deployment_prover
from inference.usage.rating.price_book import PriceBook
from inference.usage.rows import StreamEntry
from tenants.access.projects import change_project
from tenants.billing.invoicing.drafts import draft_invoice, last_month
from tenants.billing.invoicing.invoices import issue, pay
from tenants.billing.invoicing.sla_credits import ensure_default_steps
from tenants.billing.models import PriceCorrection, Seller
from tenants.billing.periods import start_of
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey

# A day, while people work.
ACME_REQUESTS: Final = 80
GLOBEX_REQUESTS: Final = 32
# Of their requests to the demo model, and the name of the adapter that `make up` uploads for both.
ADAPTER_SHARE: Final = 0.3
ADAPTER: Final = "support"

# Of their requests: the reader leaves before the end.
CANCELLED_SHARE: Final = 0.04

_REASON: Final = "What was used before the demo's first day costs what the demo does."
# Requests by the hour of a day: few at night, most around noon.
_HOURS: Final = (1, 1, 1, 1, 1, 2, 4, 8, 14, 18, 18, 14, 12, 16, 18, 16, 12, 8, 5, 4, 3, 2, 2, 1)
_WEEKEND: Final = 0.25


def seed_history(acme: ApiKey, globex: ApiKey, *, now: datetime | None = None) -> None:
    """Record requests of both keys from the first day of last month until yesterday and issue last
    month's invoices; Globex has paid. Does nothing where anything was used before or anybody
    invoices."""
    now = now or datetime.now(UTC)
    month = last_month(now)
    begin, end = start_of(month), now.replace(hour=0, minute=0, second=0, microsecond=0)
    with transaction.atomic():
        with operator_scope("seed the demo's history"):
            if UsageRecord.objects.exists() or Seller.objects.exists():
                return
            _price(begin, end)
            for key in (acme, globex):
                change_project(key.project, usage_labels=list(LABELS))
            book = PriceBook()
        draw = random.Random(1)
        prover = deployment_prover()
        used = [
            _request(key, at, USERS[name], book, prover, draw)
            for key, name, a_day in (
                (acme, "acme", ACME_REQUESTS),
                (globex, "globex", GLOBEX_REQUESTS),
            )
            for at in _moments(begin, end, a_day, draw)
        ]
        record_entries(
            StreamEntry(pool=each.pool, stream_id=f"{number}-0", data=encode(each))
            for number, each in enumerate(used)
        )
        with operator_scope("seed the demo's history"):
            _invoice(month, acme, globex, now)


def _price(begin: datetime, end: datetime) -> None:
    """Enter what that time cost: the price book's own prices begin on the demo's first day."""
    for model in DEMO_MODELS:
        correction = PriceCorrection(
            model=model,
            effective_from=begin,
            effective_until=end,
            reason=_REASON,
            **DEMO_PRICE,
        )
        correction.full_clean()
        correction.save()


def _moments(begin: datetime, end: datetime, a_day: int, draw: random.Random) -> Iterator[datetime]:
    """Yield when requests arrived: about so many a day, fewer at weekends and at night."""
    for number in range((end - begin).days):
        day = begin + timedelta(days=number)
        usual = a_day * (_WEEKEND if day.weekday() >= 5 else 1.0)
        for _ in range(round(usual * draw.uniform(0.7, 1.3))):
            (hour,) = draw.choices(range(24), _HOURS)
            yield day + timedelta(hours=hour, milliseconds=draw.randrange(3_600_000))


def _request(
    key: ApiKey,
    at: datetime,
    users: tuple[str, ...],
    book: PriceBook,
    prover: Prover,
    draw: random.Random,
) -> UsageEntry:
    """Return the record of a request that arrived at that moment; nearly all were answered as
    promised."""
    demo, simulated = DEMO_MODELS
    model = demo if draw.random() < 0.8 else simulated
    adapter = ADAPTER if model == demo and draw.random() < ADAPTER_SHARE else ""
    arrived_ms = int(at.timestamp() * 1000)
    prompt, bound = draw.randint(60, 1400), draw.randint(20, 640)
    is_cancelled = draw.random() < CANCELLED_SHARE
    output = draw.randint(1, bound) if is_cancelled else bound
    (user,) = draw.choices(users, demand(users))
    tier = key.project.tenant.tier.name
    envelope = Envelope(
        request_id=new_request_id(arrived_ms),
        tenant_id=str(key.project.tenant_id),
        project_id=str(key.project_id),
        api_key_id=str(key.id),
        tier=tier,
        gateway_id="demo",
        pool=model,
        model=model,
        api=Api.CHAT_COMPLETIONS,
        stream=True,
        body=b"{}",
        max_output_tokens=bound,
        priority=0,
        cache_salt="",
        arrived_at_ms=arrived_ms,
        ttft_target_ms=0,
        max_wait_ms=0,
        prompt_bound=prompt,
        output_bound=bound,
        prices=book.prices(
            model=model, adapter=adapter, tier=tier, service_class="interactive", at=at
        ),
        adapter_name=adapter,
        adapter_version=1 if adapter else 0,
        labels={"user": user, "metadata.feature": draw.choice(FEATURES)},
    )
    proof = prover.prove(envelope, owed=True)
    ttft_ms, between_ms = int(draw.lognormvariate(4.4, 0.5)), draw.uniform(6, 12)
    entry = usage_entry(
        replace(envelope, owed=True, proof=proof),
        attempt=1,
        outcome=Outcome.CANCELLED if is_cancelled else Outcome.COMPLETED,
        error_code=None,
        worker_id="demo#1",
        usage=TokenUsage(
            prompt_tokens=prompt,
            cached_tokens=prompt // 2 if draw.random() < 0.4 else 0,
            completion_tokens=output,
        ),
        ttft_ms=ttft_ms,
    )
    return replace(
        entry,
        finish_reason=None if is_cancelled else "stop",
        finished_at_ms=arrived_ms + ttft_ms + int(output * between_ms),
        queue_ms=draw.randint(1, 20),
        itl_p50_ms=between_ms,
        itl_p95_ms=2 * between_ms,
        generated_tokens=output,
    )


def _invoice(month: date, acme: ApiKey, globex: ApiKey, now: datetime) -> None:
    Seller.objects.create(
        name="Penstock demo", address="1 Example Street\nExampletown", number_prefix="DEMO"
    )
    ensure_default_steps()
    for key in (acme, globex):
        draft = draft_invoice(key.project.tenant, month, now=now)
        if draft is not None:
            invoice = issue(draft.id, now=now)
            if key is globex:
                pay(invoice.id, reference="demo payment", received_at=now)
