"""Keys at scale: 10,000 tenants, 50,000 keys, two gateway processes, servers of its own.

`make bench-keys` calls it. Prints each figure beside its bar, with --json writes them, and fails
where a bar is missed.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from redis.asyncio import Redis

from tests.benchmarks import at_scale
from tests.benchmarks.at_scale import KEYS, TENANTS, Times, timed
from tests.benchmarks.targets import bars

if TYPE_CHECKING:
    from django.test import Client

CHECKS = 20_000
REVOCATIONS = 120
CHANGES = 200
REQUESTS = 1_000
PAGES = 100


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What there is, and how often each thing is done: as often as there are keys for it."""

    tenants: int
    keys: int

    @property
    def checks(self) -> int:
        return min(CHECKS, self.keys)

    @property
    def revocations(self) -> int:
        return min(REVOCATIONS, self.keys // 4)

    @property
    def changes(self) -> int:
        return min(CHANGES, self.keys)

    @property
    def requests(self) -> int:
        return min(REQUESTS, self.keys)

    @property
    def pages(self) -> int:
        return min(PAGES, self.keys // 4)


@dataclass(kw_only=True)
class Report:
    """Figures by what was measured, and the bars that were missed."""

    figures: dict[str, Times] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def add(
        self,
        what: str,
        seconds: list[float],
        *,
        p99_below_ms: float | None = None,
        rounds: int = 1,
    ) -> None:
        times = Times.of(seconds, rounds=rounds)
        self.figures[what] = times
        bar = "" if p99_below_ms is None else f"; bar: p99 < {p99_below_ms:g} ms"
        print(f"{what}: {times}{bar}", flush=True)
        if p99_below_ms is not None and times.p99_ms >= p99_below_ms:
            self.missed.append(what)


def measure_writer(report: Report, sizes: Sizes) -> None:
    """From the start of the changing transaction to the snapshot that shows it."""
    from tenants.access.api_keys import change_api_key
    from tenants.isolation.scoping import operator_scope
    from tenants.models import ApiKey, Tenant
    from tenants.policy import writer

    def change_a_key() -> None:
        with operator_scope("benchmark"):
            key = ApiKey.objects.get(public_id=f"load{random.randrange(sizes.keys):012d}")
            change_api_key(key, allowed_networks=["127.0.0.0/8", "10.0.0.0/8"])

    def change_a_tenant() -> None:
        with operator_scope("benchmark"):
            Tenant.objects.get(name=f"Load {random.randrange(sizes.tenants):06d}").save()

    for what, change in (("key", change_a_key), ("tenant", change_a_tenant)):
        report.add(f"change of a {what}, in Redis", [timed(change) for _ in range(sizes.changes)])
    report.add("the whole snapshot, rewritten", [timed(writer.rebuild_policy) for _ in range(2)])


async def measure_check(report: Report, sizes: Sizes) -> None:
    """The gateway's own check, in process: first with nothing remembered, then known."""
    from django.conf import settings

    from inference.admission.gate import Admission
    from tenants.access.load_seed import load_key

    numbers = random.sample(range(sizes.keys), sizes.checks)
    chosen = [f"Bearer {load_key(number)}" for number in numbers]
    async with Redis.from_url(settings.ENV.gateway_redis_url) as redis:
        admission = Admission(redis, pepper=settings.PENSTOCK_API_KEY_PEPPER)
        await admission.start()
        for what in ("key check, cold", "key check, known"):
            seconds = []
            for header in chosen:
                started = time.perf_counter()
                await admission.authenticate(header, address="127.0.0.1", scope=None)
                seconds.append(time.perf_counter() - started)
            report.add(what, seconds, p99_below_ms=2, rounds=10)
        await admission.stop()


async def measure_revocation(
    report: Report, sizes: Sizes, gateways: list[httpx.AsyncClient]
) -> None:
    """From before the revoking transaction to the refusal by the slower of two processes. Each
    key is in use on both, so both remember it."""
    from tenants.access.load_seed import load_key
    from tests.support.polling import eventually

    seconds = []
    for number in random.sample(range(sizes.keys), sizes.revocations):
        headers = {"Authorization": f"Bearer {load_key(number)}"}
        for gateway in gateways:
            assert (await gateway.get("/v1/models", headers=headers)).status_code == 200

        async def is_refused(gateway: httpx.AsyncClient, headers: dict[str, str]) -> bool:
            return (await gateway.get("/v1/models", headers=headers)).status_code == 401

        started = time.perf_counter()
        await asyncio.to_thread(_revoke, number)
        for gateway in gateways:
            await eventually(lambda g=gateway, h=headers: is_refused(g, h))  # type: ignore[misc]
        seconds.append(time.perf_counter() - started)
    report.add("revocation, on both gateways", seconds, p99_below_ms=1000)


def _revoke(number: int) -> None:
    from django.db import connection

    from tenants.isolation.scoping import operator_scope
    from tenants.models import ApiKey

    try:
        with operator_scope("benchmark"):
            ApiKey.objects.get(public_id=f"load{number:012d}").revoke()
    finally:
        connection.close()


async def measure_requests(
    report: Report, sizes: Sizes, gateways: list[httpx.AsyncClient], *, what: str
) -> None:
    """A whole request that asks for nothing but the check; keys that no process has met."""
    from tenants.access.load_seed import load_key

    seconds = []
    for number in random.sample(range(sizes.keys), sizes.requests):
        headers = {"Authorization": f"Bearer {load_key(number)}"}
        started = time.perf_counter()
        answer = await random.choice(gateways).get("/v1/models", headers=headers)
        if answer.status_code == 401 and "revoked" in answer.text:
            continue
        assert answer.status_code == 200, answer.text
        seconds.append(time.perf_counter() - started)
    report.add(what, seconds)


def measure_pages(report: Report, sizes: Sizes) -> None:
    """The operators' lists, each as it opens, searched and on a later page."""
    from django.contrib import admin
    from django.test import Client
    from django.urls import reverse

    from tenants.models import User

    operator = User.objects.create_superuser("benchmark@load.invalid")
    client = Client()
    client.force_login(operator)
    admin.autodiscover()
    for model in admin.site._registry:
        if model._meta.app_label not in ("tenants", "inference"):
            continue
        listing = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for how, query in (("", {}), (", searched", {"q": "Load 00123"}), (", page 5", {"p": "5"})):
            seconds = list(_page_times(client, listing, query, sizes.pages))
            if seconds:
                name = f"list of {model._meta.verbose_name_plural}{how}"
                report.add(name, seconds, p99_below_ms=300, rounds=5)


def _page_times(
    client: "Client", listing: str, query: dict[str, str], pages: int
) -> Iterator[float]:
    if client.get(listing, query).status_code != 200:  # warms templates; there may be no page 5
        return
    for _ in range(pages):
        yield timed(lambda: client.get(listing, query))


async def measure_gateways(report: Report, sizes: Sizes) -> None:
    from django.conf import settings

    from tests.support.gateways.processes import a_gateway
    from tests.support.servers import servers

    async with AsyncExitStack() as stack:
        gateways = []
        for _ in range(2):
            url = await stack.enter_async_context(
                a_gateway(settings.ENV.gateway_redis_url, pepper=settings.PENSTOCK_API_KEY_PEPPER)
            )
            client = httpx.AsyncClient(base_url=url, timeout=10)
            gateways.append(await stack.enter_async_context(client))
        await measure_revocation(report, sizes, gateways)
        met = "GET /v1/models, keys not met before"
        await measure_requests(report, sizes, gateways, what=met)
        await asyncio.to_thread(servers().stop_postgres)
        stopped = "GET /v1/models, PostgreSQL stopped"
        await measure_requests(report, sizes, gateways, what=stopped)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--skip-pages", action="store_true")
    parser.add_argument("--tenants", type=int, default=TENANTS)
    parser.add_argument("--keys", type=int, default=KEYS)
    bars.add_option(parser)
    options = parser.parse_args()
    at_scale.start()
    from tenants.access.load_seed import seed_load

    sizes = Sizes(tenants=options.tenants, keys=options.keys)
    seed = seed_load(tenants=sizes.tenants, keys=sizes.keys)
    print(f"{seed.tenants} tenants and {seed.api_keys} keys in {seed.seconds:.0f} s", flush=True)
    report = Report()
    measure_writer(report, sizes)
    if not options.skip_pages:
        measure_pages(report, sizes)
    asyncio.run(measure_check(report, sizes))
    asyncio.run(measure_gateways(report, sizes))
    if options.json is not None:
        figures = {what: asdict(times) for what, times in report.figures.items()}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    bars.judge(report.missed, options)


if __name__ == "__main__":
    main()
