"""Chromium on the live stack. A test fails where a page does what no page may do: see `Watched`.

Playwright runs for one test at a time: its loop stands in the way of tests with one of their own.
"""

import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.support.chromium.browsing import browsing
from tests.support.chromium.flows import Newcomer, let_limits_pass, sign_up
from tests.support.chromium.launching import chromium_path
from tests.support.chromium.watched import Watched
from tests.support.stack_addresses import LiveStack


@pytest.fixture(scope="session")
def chromium() -> str:
    path = chromium_path()
    if path is None:
        pytest.skip("This machine has no Chromium; .ci/run installs it: apt-get install chromium")
    return path


@pytest.fixture
def browser(chromium: str, live_stack: LiveStack) -> Iterator[Watched]:
    let_limits_pass(live_stack)
    log = live_stack.var_folder / "log" / "web.log"
    begun = log.stat().st_size
    try:
        with browsing(chromium, live_stack.public_url) as watched:
            yield watched
    finally:
        said = log.read_bytes()[begun:].decode(errors="replace")
        if "Traceback" in said:  # of a page that could not be made
            sys.stderr.write(said)


@pytest.fixture
def page(browser: Watched) -> Page:
    """A page of somebody whom the service has never seen."""
    return browser.open()


@pytest.fixture
def carol(page: Page, live_stack: LiveStack) -> Newcomer:
    """Somebody new, signed in on the page."""
    return sign_up(page, live_stack)
