"""The usage explorer in a real browser: narrowed, split, saved as a view, opened again, kept as a
file; and without JavaScript. The pages are served by the test itself."""

import csv
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.db import connection
from playwright.sync_api import Locator, Page, expect
from pytest_django import Settings
from redis import Redis

from inference.redis_functions import LIBRARIES, library_text
from inference.usage.rollups import Use, add_to_rollups
from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Membership, Project, User
from tenants.permissions import Role
from tests.screenshots.taking import hard_to_use, sideways
from tests.support.chromium.browsing import Cookies, browsing, cookies_of, signed_in
from tests.support.chromium.serving import serving
from tests.support.chromium.watched import Watched
from tests.support.places import free_port
from tests.support.projects import make_project

pytestmark = [pytest.mark.stack, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def acme(settings: Settings, dispatch_redis_url: str) -> Project:
    """Two models used in each of the last three days, the larger at nine times the cost."""
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False
    settings.ALLOWED_HOSTS = ["*"]
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        for library in LIBRARIES:
            redis.function_load(library_text(library), replace=True)
    now = datetime.now(UTC)
    with operator_scope("test"):
        project = make_project("Acme", "premium")
        key = issue_api_key(project, name="web").record
        add_to_rollups(
            [
                use_of(key, model, nanos, now - timedelta(days=day))
                for model, nanos in (("large", 9_000_000_001), ("small", 1_000_000_000))
                for day in range(3)
            ]
        )
        alice = User.objects.create_user("alice@acme.example")
        Membership.objects.create(tenant=project.tenant, user=alice, role=Role.ADMIN)
    return project


def use_of(key: ApiKey, model: str, nanos: int, arrived_at: datetime) -> Use:
    return Use(
        tenant_id=str(key.tenant_id), project_id=str(key.project_id), api_key_id=str(key.id),
        model=model, adapter="", tier="premium", arrived_ms=int(arrived_at.timestamp() * 1000),
        outcome="completed", prompt_tokens=100, completion_tokens=50, cost_nanos=nanos, ttft_ms=80,
        duration_ms=900,
    )  # fmt: skip


def use_now(project: Project) -> None:
    try:
        with operator_scope("test"):
            key = ApiKey.objects.get(project=project)
            add_to_rollups([use_of(key, "large", 9_000_000_001, datetime.now(UTC))])
    finally:
        connection.close()


@pytest.fixture
def cookies(acme: Project) -> Cookies:
    return cookies_of(User.objects.get(email="alice@acme.example"))


@pytest.fixture
def url(acme: Project) -> Iterator[str]:
    with serving(ASGIHandler(), free_port()) as url:
        yield url


@pytest.fixture
def browser(chromium: str, url: str, cookies: Cookies) -> Iterator[Watched]:
    with browsing(chromium, url) as watched:
        yield watched


def opened(page: Page, url: str, cookies: Cookies, acme: Project) -> Page:
    signed_in(page, url, cookies).goto(f"/t/{acme.tenant_id}/usage")
    return page


def test_usage_is_split_narrowed_saved_and_opened_again(
    browser: Watched, url: str, cookies: Cookies, acme: Project, tmp_path: Path
) -> None:
    page = opened(browser.open(), url, cookies, acme)
    expect(page.locator("[name=from]")).not_to_have_value("")
    page.locator("[name=by]").select_option("model")
    rows = page.locator("#report .table-box tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("$27.000000003")
    page.get_by_text("More filters").click()
    page.locator("[name=model]").select_option("small")
    page.wait_for_url(re.compile(r"model=small"))
    expect(rows).to_have_count(1)
    page.locator("#usage-chart canvas").wait_for()

    page.get_by_text("Saved views").click()
    page.get_by_label("Name of the view").fill("The small one")
    page.get_by_label("For everybody").check()
    page.get_by_role("button", name="Save this view").click()
    page.wait_for_url(re.compile(r"days=30"))
    page.goto(f"/t/{acme.tenant_id}/usage")
    page.get_by_text("Saved views").click()
    page.get_by_role("link", name="The small one").click()
    page.wait_for_url(re.compile(r"by=model"))
    expect(rows).to_have_count(1)
    expect(page.locator("[name=model]")).to_have_value("small")
    assert hard_to_use(page) == []

    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    download.value.save_as(tmp_path / "usage.csv")
    [row] = csv.DictReader((tmp_path / "usage.csv").read_text().splitlines())
    assert (row["model"], row["cost_dollars"]) == ("small", "3.000000000")

    page.locator(".tab", has_text="Requests").click()
    page.wait_for_url(re.compile(r"/requests\?.*model=small"))
    page.locator(".tab", has_text="Usage").click()
    page.wait_for_url(re.compile(r"/usage\?.*by=model"))
    expect(rows).to_have_count(1)


@pytest.mark.rare
def test_without_javascript_filters_and_views_work_too(
    browser: Watched, url: str, cookies: Cookies, acme: Project
) -> None:
    chromium = browser.open().context.browser
    assert chromium is not None
    plain = chromium.new_context(base_url=url, java_script_enabled=False)
    page = opened(plain.new_page(), url, cookies, acme)
    page.locator(".filters-more > summary").click()
    page.locator("[name=model]").select_option("large")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#report .table-box tbody tr")).to_have_count(1)
    page.locator(".saved-views > summary").click()
    page.get_by_label("Name of the view").fill("large")
    page.get_by_role("button", name="Save this view").click()
    page.locator(".saved-views > summary").click()
    page.get_by_role("button", name="Delete the view large").click()
    expect(page.locator(".saved-view")).to_have_count(0)


@pytest.mark.rare
def test_hours_are_the_viewers_and_a_phone_scrolls_nowhere_sideways(
    browser: Watched, url: str, cookies: Cookies, acme: Project
) -> None:
    page = opened(browser.open(), url, cookies, acme)
    page.set_viewport_size({"width": 360, "height": 740})
    asked_at = datetime.now(UTC)
    page.goto(f"/t/{acme.tenant_id}/usage?granularity=hour&days=3&by=model")
    page.locator("#usage-chart canvas").wait_for()
    zone = page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    page.locator("#usage-chart summary").click()
    expect(page.locator("#usage-chart [data-when]")).to_have_text(f"Hour ({zone})")
    # Of the last day the hours that have begun.
    begun = {48 + moment.hour + 1 for moment in (asked_at, datetime.now(UTC))}
    assert page.locator("#usage-chart tbody tr").count() in begun
    assert sideways(page) == []


def requests_of(page: Page) -> Locator:
    label = page.get_by_text("Requests", exact=True)
    return page.locator(".figure", has=label).locator("[title]")


def test_a_page_that_is_being_left_asks_nothing_more_by_itself(
    browser: Watched, url: str, cookies: Cookies, acme: Project
) -> None:
    page = signed_in(browser.open(), url, cookies)
    page.goto(f"/t/{acme.tenant_id}/")
    page.locator("[data-live-ms]").wait_for()
    seen, left = page.evaluate(
        """async () => {
          const panels = document.querySelector("[data-live-ms]");
          let sent = 0;
          panels.addEventListener("htmx:beforeSend", () => { sent += 1; });
          const answered = new Promise((done) =>
            panels.addEventListener("htmx:afterRequest", done, { once: true }));
          htmx.trigger(panels, "live");
          await answered;
          const seen = sent;
          dispatchEvent(new Event("beforeunload"));
          htmx.trigger(panels, "live");
          return [seen, sent - seen];
        }"""
    )
    assert seen >= 1 and left == 0


@pytest.mark.rare
def test_the_overview_is_kept_current_while_it_is_seen(
    browser: Watched, url: str, cookies: Cookies, acme: Project
) -> None:
    page = signed_in(browser.open(), url, cookies)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"/t/{acme.tenant_id}/")
    expect(page.locator("[data-live-ms]")).to_contain_text("Nothing is open now.")
    for chart in ("#spend-chart", "#ttft-chart"):
        page.locator(f"{chart} canvas").wait_for()
    page.locator("#spend-chart canvas").evaluate("(canvas) => { canvas.isDrawnOnce = true }")
    page.get_by_role("link", name="Refusals of this month").focus()
    before = int(requests_of(page).inner_text())  # on the first of a month only today's
    with ThreadPoolExecutor(max_workers=1) as pool:  # Playwright's own thread has a loop
        pool.submit(use_now, acme).result()
    expect(requests_of(page)).to_have_text(str(before + 1), timeout=15_000)
    assert page.locator("#spend-chart canvas").evaluate("(canvas) => canvas.isDrawnOnce")
    expect(page.get_by_role("link", name="Refusals of this month")).to_be_focused()
    assert hard_to_use(page) == [] and sideways(page) == []
    assert [each for each in asked if each.endswith("/now")]
