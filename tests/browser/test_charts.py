"""Charts in a real browser: drawn from their tables, exact under the pointer, and tables alone
without JavaScript. The pages are served by the test itself."""

from collections.abc import Iterator

import pytest
from django.core.handlers.asgi import ASGIHandler
from playwright.sync_api import Page, expect
from pytest_django import Settings

from tenants.models import User
from tests.support.chromium.browsing import browsing, cookies_of, signed_in
from tests.support.chromium.serving import serving
from tests.support.chromium.watched import Watched
from tests.support.places import free_port

pytestmark = [pytest.mark.stack, pytest.mark.django_db(transaction=True)]
ADDRESS = "/operators/components"
_SHIFTS = """
    () => new Promise((tell) => new PerformanceObserver((list) => {
      tell(list.getEntries().map((entry) => entry.value));
    }).observe({ type: "layout-shift", buffered: true }) || setTimeout(() => tell([]), 500))
"""


@pytest.fixture
def cookies(settings: Settings) -> dict[str, str]:
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False
    settings.ALLOWED_HOSTS = ["*"]
    return cookies_of(User.objects.create_user("ops@example.org", is_staff=True))


@pytest.fixture
def url(cookies: dict[str, str]) -> Iterator[str]:
    with serving(ASGIHandler(), free_port()) as url:
        yield url


@pytest.fixture
def browser(chromium: str, url: str) -> Iterator[Watched]:
    with browsing(chromium, url) as watched:
        yield watched


def opened(page: Page, url: str, cookies: dict[str, str]) -> Page:
    signed_in(page, url, cookies).goto(ADDRESS)
    return page


def test_a_chart_says_the_words_of_its_table_and_nothing_moves(
    browser: Watched, url: str, cookies: dict[str, str]
) -> None:
    page = opened(browser.open(), url, cookies)
    chart = page.locator("#sample-spend")
    chart.locator("canvas").wait_for()
    assert page.evaluate(_SHIFTS) == []
    plot = chart.locator(".u-over")
    box = plot.bounding_box()
    assert box is not None
    plot.hover(position={"x": 1, "y": box["height"] / 2})
    tip = chart.locator(".chart-tip")
    expect(tip).to_contain_text("1 Nov 2026")
    chart.get_by_text("Table").click()
    row = chart.locator("tbody tr").first
    exact = row.locator("data").first.inner_text()
    assert exact.startswith("$") and len(exact.partition(".")[2]) > 2
    expect(tip).to_contain_text(exact)
    drawn = chart.locator("canvas").evaluate("canvas => canvas.toDataURL()")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "drawn => document.querySelector('#sample-spend canvas').toDataURL() !== drawn", arg=drawn
    )
    expect(chart.locator("canvas")).to_have_count(1)


@pytest.mark.rare
def test_without_javascript_the_tables_stand(
    browser: Watched, url: str, cookies: dict[str, str]
) -> None:
    chromium = browser.open().context.browser
    assert chromium is not None
    plain = chromium.new_context(base_url=url, java_script_enabled=False)
    page = opened(plain.new_page(), url, cookies)
    expect(page.locator("#sample-spend tbody tr").first).to_be_visible()
    expect(page.locator("#sample-spend [data-plot]")).to_be_hidden()
