"""Lists, reports and searches of tenants and the operators' dashboards at scale, on servers of its
own: how long they take, what a page weighs and when Chromium shows it.

`make bench-pages` calls it. Whatever list, page or dashboard is added is measured: they are found
among the addresses. Prints each figure beside its bar, with --json writes them, and fails where a
bar is missed.
"""

import argparse
import gzip
import json
import math
import os
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import at_scale
from tests.benchmarks.at_scale import TENANTS, busy, timed
from tests.benchmarks.pages.addresses import lists, of_operators, pages, reports, searches
from tests.benchmarks.targets import bars
from tests.support.chromium.launching import FLAGS, chromium_path
from tests.support.chromium.serving import serving
from tests.support.places import LOOPBACK, free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LIST_P95_MS = 150
PAGE_P95_MS = 300
PAGE_KB = 200
READABLE_MS = 1000
_ASKED = 100  # tenants, of each list and page
_LARGEST = 20  # of them those with the most usage
_DASHBOARD_ROUNDS = 20
_ROUNDS = 5  # in Chromium, each with an empty cache


@dataclass(frozen=True, kw_only=True)
class Times:
    """Of one list or page, over the tenants that were asked for, in milliseconds."""

    p50_ms: float
    p95_ms: float
    longest_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Times":
        milliseconds = sorted(each * 1000 for each in seconds)
        return cls(
            p50_ms=round(statistics.median(milliseconds), 1),
            p95_ms=round(milliseconds[math.ceil(len(milliseconds) * 0.95) - 1], 1),
            longest_ms=round(milliseconds[-1], 1),
        )


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Of one page in Chromium with an empty cache: all that it loads, compressed as a proxy would,
    and milliseconds until its first and its largest content were painted (medians)."""

    kb: float
    first_paint_ms: float
    largest_paint_ms: float


def measure_answers(addresses: Sequence[tuple[str, str]]) -> dict[str, Times]:
    """Ask for each of them as an owner of each of the chosen tenants, in one process."""
    from django.test import Client

    seconds: dict[str, list[float]] = {name: [] for name, _ in addresses}
    for user, tenant_id in _owners():
        client = Client()
        client.force_login(user)
        client.get("/api/v1/me")
        for name, address in addresses:
            seconds[name].append(timed(lambda: _get(client, address, tenant_id)))  # noqa: B023
    return {name: Times.of(each) for name, each in seconds.items()}


def measure_dashboards(addresses: Sequence[tuple[str, str]]) -> dict[str, Times]:
    """Ask for each of the operators' as one of them, with nothing read before; the tenant is that
    with the most usage."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    from tests.support.figures.live_panels import forget_panels

    client = Client()
    client.force_login(get_user_model().objects.create_superuser("bench@example.org"))
    found = {}
    _, largest = _owners()[0]
    for name, of_a_tenant in addresses:
        address, seconds = of_a_tenant.format(tenant=largest), []
        for _ in range(_DASHBOARD_ROUNDS):
            forget_panels()
            seconds.append(timed(lambda: _get_whole(client, address)))  # noqa: B023
        found[name] = Times.of(seconds)
    return found


def _get_whole(client: Any, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 200, (address, answer.status_code, answer.content[:300])
    # A panel that took too long says so, and would be quick.
    assert b"not reachable" not in answer.content, address


def _owners() -> list[tuple[Any, str]]:
    """Those of the tenants with the most usage, and some of all."""
    from tenants.isolation.scoping import operator_scope
    from tenants.models import Membership

    with operator_scope("benchmark"):
        members = list(
            Membership.objects.filter(tenant__name__startswith="Load ")
            .select_related("user")
            .order_by("tenant__name")
        )
    others = members[_LARGEST:]
    asked = min(_ASKED - _LARGEST, len(others))
    chosen = members[:_LARGEST] + random.sample(others, asked)
    return [(member.user, str(member.tenant_id)) for member in chosen]


def _get(client: Any, address: str, tenant_id: str) -> None:
    answer = client.get(address.format(tenant=tenant_id))
    assert answer.status_code == 200, (address, answer.status_code, answer.content[:300])


def measure_in_chromium(
    addresses: Sequence[tuple[str, str]], port: int, rounds: int
) -> dict[str, Shown]:
    """Open each page of the tenant with the most usage."""
    from django.core.asgi import get_asgi_application
    from django.test import Client
    from playwright.sync_api import sync_playwright

    user, tenant_id = _owners()[0]
    client = Client()
    client.force_login(user)
    cookies = {name: morsel.value for name, morsel in client.cookies.items()}
    with serving(get_asgi_application(), port) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(FLAGS))
        shown = {
            name: _shown(browser, url, address.format(tenant=tenant_id), cookies, rounds)
            for name, address in addresses
        }
        browser.close()
    return shown


def _shown(
    browser: "Browser", url: str, address: str, cookies: dict[str, str], rounds: int
) -> Shown:
    weights, first, largest = [], [], []
    for _ in range(rounds):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        for name, value in cookies.items():
            context.add_cookies([{"name": name, "value": value, "url": url}])
        page = context.new_page()
        bodies: list[Any] = []
        page.on("response", lambda answer: bodies.append(answer))  # noqa: B023
        page.goto(url + address, wait_until="networkidle")
        weights.append(sum(len(gzip.compress(answer.body())) for answer in bodies) / 1000)
        times = page.evaluate(_PAINTS)
        first.append(times["first"])
        largest.append(times["largest"])
        context.close()
    return Shown(
        kb=round(statistics.median(weights), 1),
        first_paint_ms=round(statistics.median(first)),
        largest_paint_ms=round(statistics.median(largest)),
    )


_PAINTS = """
    () => new Promise((found) => {
      const first = performance.getEntriesByName("first-contentful-paint")[0].startTime
      new PerformanceObserver((entries) => {
        found({ first, largest: entries.getEntries().at(-1).startTime })
      }).observe({ type: "largest-contentful-paint", buffered: true })
    })
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--tenants", type=int, default=TENANTS)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="in Chromium")
    parser.add_argument("--only", default="", help="those whose name holds this")
    bars.add_option(parser)
    options = parser.parse_args()
    port = free_port()
    os.environ["PENSTOCK_PUBLIC_URL"] = f"http://{LOOPBACK}:{port}"
    at_scale.start()
    from inference.usage.seed import KEYS_OF_A_TENANT, seed_usage

    seed = seed_usage(rows=options.rows, tenants=options.tenants, days=90)
    print(
        f"{options.tenants} tenants, {options.tenants * KEYS_OF_A_TENANT} keys and "
        f"{seed.records} records seeded in "
        f"{seed.seconds:.0f} s; {busy()}"
    )
    at_scale.analyze()
    all_lists, all_pages, others, dashboards = (
        [(name, address) for name, address in found if options.only in name]
        for found in (lists(), pages(), [*searches(), *reports()], of_operators())
    )
    answers = measure_answers([*all_lists, *all_pages, *others])
    answers |= measure_dashboards(dashboards)
    most_ms = dict.fromkeys(answers, PAGE_P95_MS) | {name: LIST_P95_MS for name, _ in all_lists}
    for name, times in answers.items():
        print(f"{name}: {times}; bar: p95 {most_ms[name]} ms", flush=True)
    shown = measure_in_chromium(all_pages, port, options.rounds)
    for name, each in shown.items():
        print(f"{name}: {each}; bars: {PAGE_KB} kB, {READABLE_MS} ms")
    if options.json is not None:
        figures = {
            "answers": {name: asdict(times) for name, times in answers.items()},
            "in_chromium": {name: asdict(each) for name, each in shown.items()},
        }
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    missed = [name for name, times in answers.items() if times.p95_ms >= most_ms[name]]
    missed += [
        f"{name} in Chromium"
        for name, each in shown.items()
        if each.kb >= PAGE_KB or each.largest_paint_ms >= READABLE_MS
    ]
    bars.judge(missed, options)


if __name__ == "__main__":
    main()
