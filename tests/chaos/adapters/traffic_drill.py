"""A canary by the book, and a roll-back while both gateways answer."""

import asyncio
import time
from collections import Counter
from decimal import ROUND_HALF_EVEN, Decimal

from asgiref.sync import sync_to_async

from tests.chaos.adapters.asker import TOKENS, Asker, Told
from tests.chaos.adapters.books import check_everything, version_of
from tests.chaos.adapters.stack import AdapterStack
from tests.chaos.adapters.tenant import AdapterTenant, packed
from tests.chaos.drills import _end
from tests.chaos.load import Answer, Load
from tests.chaos.processes import until
from tests.chaos.report import Report
from tests.chaos.stack import Record

REQUESTS = 10_000
USERS = 5_000
CONNECTIONS = 24
CANARY = 100  # permille
OFF_PERCENT = 1.0
FLIPS = 10
BETWEEN_FLIPS_SECONDS = 1.5
ROLLED_BACK_SECONDS = 1.0
STREAMS = 12
# Pico-dollars a token: prompt, cached, completion. The base's, which another tenant pays too, and
# those of the two adapters.
PRICES = ((1_000_000, 500_000, 2_000_000), (3_000_000, 1_500_001, 7_000_003))


async def split_and_roll_back(stack: AdapterStack, report: Report) -> None:
    """10,000 requests shared out 90:10, as nobody and as 5,000 people; then promoted and rolled
    back ten times while both gateways answer."""
    acme = stack.tenants[0]
    old, new = 1, await acme.add_ready_version(packed(61))
    await _set_price(stack.model, acme.name, PRICES[1])
    await until(lambda: _has_price(stack, acme))
    asker = Asker(stack.ports, acme.key, acme.name, connections=CONNECTIONS)
    await acme.point({old: 1000 - CANARY, new: CANARY})
    await asyncio.sleep(1)
    for what, user_of in (("nobody", lambda _: ""), ("people", lambda n: f"p-{n % USERS}")):
        drill = f"90:10 over {REQUESTS:,} requests, as {what}"
        since = time.monotonic()
        told = await asker.ask(REQUESTS, user_of)
        report.add(drill, "requests a second", REQUESTS / (time.monotonic() - since))
        shares = Counter(each.adapter for each in told)
        off = abs(shares[f"{acme.name}@{new}"] / REQUESTS * 100 - CANARY / 10)
        report.add(drill, "the canary's share off by", off, "points", most=OFF_PERCENT)
        others = REQUESTS - shares[f"{acme.name}@{new}"] - shares[f"{acme.name}@{old}"]
        report.add(drill, "requests answered by neither", others, most=0)
        seen: dict[str, set[str]] = {}
        for each in told:
            seen.setdefault(each.user, set()).add(each.adapter)
        fickle = [user for user, versions in seen.items() if user and len(versions) > 1]
        if what == "people":
            report.add(drill, "people who got both", len(fickle), most=0)

    drill = "promoted and rolled back under load"
    load = Load(
        stack.ports, acme.target(), stack.target, stack.tenants[1].target(), streams=STREAMS
    )
    await load.learn(acme.target(old), acme.target(new), stack.target, stack.tenants[1].target())
    load.start()
    over = asyncio.Event()
    asking = asyncio.create_task(asker.ask_until(over, lambda _: ""))
    begun = len(asker.told)
    late: list[float] = []
    for turn in range(FLIPS):
        await asyncio.sleep(BETWEEN_FLIPS_SECONDS)
        to, away = (new, old) if turn % 2 == 0 else (old, new)
        sent_at = time.monotonic()
        await acme.point({to: 1000})
        answered = time.monotonic() - sent_at
        await asyncio.sleep(BETWEEN_FLIPS_SECONDS)
        before = f"{acme.name}@{away}"
        lasts = [_last(asker.told, gateway, before, sent_at) for gateway in (0, 1)]
        late += lasts
        kind = "promote" if turn % 2 == 0 else "roll back"
        print(f"    {kind}: answered after {answered:.3f} s, {lasts[0]:.3f} {lasts[1]:.3f}")
    over.set()
    await asking
    report.add(drill, "times", FLIPS)
    report.add(drill, "requests meanwhile", len(asker.told) - begun)
    what = "the last request for the version before, on either gateway, after the call was sent"
    report.add(drill, what, max(late), "s", most=ROLLED_BACK_SECONDS)
    failed = [each for each in asker.told if each.status != 200]
    report.add(drill, "requests that failed, of all", len(failed), most=0)
    await _end(stack, load, drill, report)
    broken = [each for each in load.answers if not each.is_complete]
    report.add(drill, "streams that did not go on to their end", len(broken), most=0)
    await _compare(stack, acme, asker.told, load.answers, drill, report)
    await check_everything(stack, drill, report)


async def _compare(
    stack: AdapterStack,
    acme: AdapterTenant,
    told: list[Told],
    answers: list[Answer],
    drill: str,
    report: Report,
) -> None:
    """Each header against its record, each record against its price."""
    said = {each.request_id: each.adapter for each in told}
    said |= {each.request_id: each.adapter for each in answers if each.request_id}
    records = await stack.records(said)
    report.add(drill, "requests without a record", len(said) - len(records), most=0)
    others = [one for one, record in records.items() if version_of(record) != said[one]]
    report.add(drill, "records of another version than the header said", len(others), most=0)
    mine = [records[each.request_id] for each in told if each.request_id in records]
    short = [each for each in mine if each.completion_tokens != TOKENS]
    report.add(drill, "answers billed for other tokens", len(short), most=0)
    off = [each for each in records.values() if each.cost_nanos != _cost(each, acme.name)]
    report.add(drill, "records at another price than their adapter's", len(off), most=0)
    mine = [each for each in records.values() if each.adapter == acme.name]
    report.add(drill, "requests at the adapter's own price", len(mine))
    total = sum(each.cost_nanos for each in records.values())
    report.add(drill, "nano-dollars on record", total)


def _cost(record: Record, adapter: str) -> int:
    prompt, cached, completion = PRICES[record.adapter == adapter]
    picos = (
        (record.prompt_tokens - record.cached_tokens) * prompt
        + record.cached_tokens * cached
        + record.completion_tokens * completion
    )
    return int((Decimal(picos) / 1000).to_integral_value(ROUND_HALF_EVEN))


def _last(told: list[Told], gateway: int, adapter: str, since: float) -> float:
    """How long after `since` a request last began that a gateway gave to this version."""
    of_it = (
        each.begun_at - since
        for each in told
        if each.gateway == gateway and each.adapter == adapter and each.begun_at >= since
    )
    return max(of_it, default=0.0)


@sync_to_async
def _set_price(model: str, adapter: str, price: tuple[int, int, int]) -> None:
    from tenants.billing.models import Price
    from tenants.isolation.scoping import operator_scope

    with operator_scope("chaos drills"):
        Price.objects.create(
            model=model,
            adapter=adapter,
            prompt_micros_per_million_tokens=price[0],
            cached_micros_per_million_tokens=price[1],
            completion_micros_per_million_tokens=price[2],
        )


async def _has_price(stack: AdapterStack, acme: AdapterTenant) -> bool:
    """Whether both gateways charge the adapter's price."""
    asker = Asker(stack.ports, acme.key, acme.name, connections=1)
    told = await asker.ask(4 * len(stack.ports), lambda _: "")
    await until(stack.is_empty)
    records = await stack.records(each.request_id for each in told)
    return len({each.gateway for each in told}) == len(stack.ports) and all(
        each.cost_nanos == _cost(each, acme.name) for each in records.values()
    )
