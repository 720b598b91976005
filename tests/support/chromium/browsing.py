"""Chromium for one test, and sessions of people who need no form to sign in."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.test import Client
from playwright.sync_api import Page, sync_playwright

from tenants.models import User
from tests.support.chromium.launching import FLAGS
from tests.support.chromium.watched import Watched

Cookies = dict[str, str]


@contextmanager
def browsing(chromium: str, url: str) -> Iterator[Watched]:
    """Open Chromium; fail at the end where a page did what no page may do. To be opened last:
    Playwright's loop stands in the way of the database."""
    with sync_playwright() as playwright:
        process = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        watched = Watched(process, url)
        yield watched
        process.close()
    if watched.problems:
        pytest.fail("\n".join(["What no page may do:", *watched.problems]), pytrace=False)


def cookies_of(user: User) -> Cookies:
    """Return those of a session that somebody has."""
    client = Client()
    client.force_login(user)
    return {name: morsel.value for name, morsel in client.cookies.items()}


def signed_in(page: Page, url: str, cookies: Cookies) -> Page:
    """Give the page's browser a session."""
    page.context.add_cookies(
        [{"name": name, "value": value, "url": url} for name, value in cookies.items()]
    )
    return page
