"""The fleet page in a real browser: it keeps itself current, stops while nobody sees it, says when
it is old, and drains a worker by keyboard."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.figures import EngineFigures
from inference.models import Worker
from tenants.isolation.scoping import operator_scope
from tenants.models import User
from tests.screenshots.taking import hard_to_use, sideways
from tests.support.chromium.launching import FLAGS, chromium_path
from tests.support.chromium.watched import Watched
from tests.support.fleet import worker_info, write_worker

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = "correct horse battery"
FRAGMENT = "**/dashboards/fleet/panels"


@pytest.fixture
def redis(settings: Any, dispatch_redis_url: str, functions_loaded: None) -> Iterator[Redis]:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        yield redis


@pytest.fixture
def on_record(transactional_db: None) -> None:
    """The worker that the test writes, as the copy of the registry has it."""
    with operator_scope("test"):
        here = worker_info(worker_id="large-worker#1", name="gpu-1", pool="large")
        Worker.objects.sync([here])


@pytest.fixture
def watched(live_server: LiveServer, settings: Any) -> Iterator[Watched]:
    path = chromium_path()
    if path is None:
        pytest.skip("This machine has no Chromium; .ci/run installs it: apt-get install chromium")
    settings.PENSTOCK_PUBLIC_URL = live_server.url
    User.objects.create_superuser("ops@example.org", PASSWORD)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        watched = Watched(browser, live_server.url)
        yield watched
        browser.close()
    assert watched.problems == []


def test_the_focus_stays_on_what_needs_attention(
    watched: Watched, redis: Redis, redis_url: str
) -> None:
    with Redis.from_url(redis_url) as other:
        other.delete("beat:successes", "fsck:result")
    page = fleet_page(watched)
    page.goto("/admin/")
    concern = page.get_by_role("link", name="No background task has ever succeeded")
    concern.focus()
    with page.expect_response("**/dashboards/attention/panels"):
        pass
    expect(concern).to_be_focused()


def fleet_page(watched: Watched) -> Page:
    page = watched.open()
    page.goto("/admin/login/?next=/admin/dashboards/fleet/")
    page.locator("[name=username]").fill("ops@example.org")
    page.locator("[name=password]").fill(PASSWORD)
    page.locator("[type=submit]").first.click()
    page.wait_for_url("**/dashboards/fleet/")
    return page


def test_the_page_keeps_itself_current_and_says_when_it_cannot(
    watched: Watched, redis: Redis
) -> None:
    write_worker(redis, "large", name="gpu-1", figures=EngineFigures(kv_used=0.25))
    page = fleet_page(watched)
    row = page.locator("tr", has_text="gpu-1")
    expect(row).to_contain_text("25 %")
    write_worker(redis, "large", name="gpu-1", figures=EngineFigures(kv_used=0.75))
    expect(row).to_contain_text("75 %")

    page.route(FRAGMENT, lambda route: route.fulfill(status=404, body=""))
    watched.expect(404)
    expect(page.locator("[data-live-note]")).to_contain_text("Not updated since")
    expect(row).to_contain_text("75 %")
    page.unroute(FRAGMENT)
    expect(page.locator("[data-live-note]")).to_be_hidden()
    assert all("404 from /admin/dashboards/fleet/panels" in each for each in watched.problems)
    watched.problems.clear()  # htmx has noted them too


def test_a_page_that_nobody_sees_asks_nothing(watched: Watched, redis: Redis) -> None:
    page = fleet_page(watched)
    page.clock.install()
    page.reload()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    _seen(page, "hidden")
    page.clock.run_for(20_000)
    assert not [address for address in asked if "panels" in address]
    _seen(page, "visible")
    with page.expect_response(FRAGMENT):
        page.clock.run_for(2_100)


def _seen(page: Page, state: str) -> None:
    page.evaluate(
        "state => Object.defineProperty(document, 'visibilityState',"
        " { value: state, configurable: true })",
        state,
    )


def stay_alive(redis: Redis) -> None:
    """The worker has its lease for as long as the machine needs for the test."""
    in_an_hour = (redis.time()[0] + 3600) * 1000
    redis.zadd(keys.pool_heartbeats("large"), {"large-worker#1": in_an_hour})


def test_on_a_phone_a_worker_is_a_card_whose_figures_have_their_names(
    watched: Watched, redis: Redis
) -> None:
    write_worker(
        redis,
        "large",
        name="gpu-1-of-a-rack-with-a-rather-long-name",
        figures=EngineFigures(kv_used=0.25, preemptions=1_234_567),
        problem="its outbox takes nothing: No space left on device",
    )
    stay_alive(redis)
    page = fleet_page(watched)
    page.set_viewport_size({"width": 360, "height": 740})
    table = page.locator("#pool-1-table")
    assert table.evaluate("box => box.scrollWidth <= box.clientWidth")
    name_of = "cell => getComputedStyle(cell, '::before').content"
    assert table.locator("td", has_text="25 %").evaluate(name_of) == '"KV cache"'
    expect(table.get_by_role("link", name="Drain")).to_be_in_viewport()
    assert sideways(page) == []
    assert hard_to_use(page) == []


def test_all_pages_can_be_used_by_everybody(watched: Watched, redis: Redis) -> None:
    page = fleet_page(watched)
    page.goto("/admin/pages/")
    expect(page.get_by_role("main").get_by_role("link", name="Invoices")).to_be_visible()
    assert hard_to_use(page) == []


def test_a_worker_is_drained_by_keyboard_and_the_focus_outlives_an_update(
    on_record: None, watched: Watched, redis: Redis
) -> None:
    write_worker(redis, "large", name="gpu-1")
    stay_alive(redis)
    page = fleet_page(watched)
    drain = page.get_by_role("link", name="Drain gpu-1")
    drain.focus()
    with page.expect_response(FRAGMENT):
        pass
    expect(drain).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/drain/")
    page.get_by_role("button", name="Drain").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("gpu-1 is draining. It leaves by itself.")).to_be_visible()
    assert redis.lrange(keys.pool_inbox("large", "large-worker#1"), 0, -1) == [b"drain\n"]
