"""An adapter's zip in a real browser: sent in parts, validated in the jail, seen as ready; without
JavaScript too. The pages are served by the test itself: it validates when it likes, and no engine
takes part."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler
from playwright.sync_api import Page, expect
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import codec, keys
from inference.adapters.intake import validate_version
from inference.models import AdapterVersion
from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, Project, User
from tenants.permissions import Role
from tests.support.adapter_uploads.upload import BASE, config, files, zipped
from tests.support.adapters.records import a_base
from tests.support.chromium.browsing import browsing, cookies_of, signed_in
from tests.support.chromium.serving import serving
from tests.support.chromium.watched import Watched
from tests.support.places import free_port
from tests.support.projects import make_project

pytestmark = [pytest.mark.stack, pytest.mark.django_db(transaction=True)]
_READY_MS = 15_000


@pytest.fixture
def acme(settings: Settings, tmp_path: Path, dispatch_redis_url: str) -> Project:
    settings.PENSTOCK_BLOB_STORE_URL = f"file:{tmp_path / 'blobs'}"
    settings.CELERY_BROKER_URL = "memory://"
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False
    settings.ALLOWED_HOSTS = ["*"]
    with operator_scope("test"):
        project = make_project("Acme", "premium")
        model = a_base()
        alice = User.objects.create_user("alice@acme.example")
        Membership.objects.create(tenant=project.tenant, user=alice, role=Role.DEVELOPER)
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.set(keys.pool_adapter_base(model.pool_id), codec.encode(BASE))
    return project


@pytest.fixture
def cookies(acme: Project) -> dict[str, str]:
    return cookies_of(User.objects.get(email="alice@acme.example"))


@pytest.fixture
def url(acme: Project) -> Iterator[str]:
    with serving(ASGIHandler(), free_port()) as url:
        yield url


@pytest.fixture
def browser(chromium: str, url: str, cookies: dict[str, str]) -> Iterator[Watched]:
    with browsing(chromium, url) as watched:
        yield watched


def a_zip(folder: Path, **changes: Any) -> Path:
    """What PEFT's folder is once somebody has zipped it."""
    path = folder / "support.zip"
    path.write_bytes(zipped(files(settings=config(**changes))))
    return path


def look_at(address: str) -> str:
    """Validate a version as the worker of the queue does; Playwright's thread has a loop."""
    version_id = uuid.UUID(address.rsplit("/", 1)[-1])
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(_validated, version_id).result()


def _validated(version_id: uuid.UUID) -> str:
    from django.db import connection

    try:
        return validate_version(version_id)
    finally:
        connection.close()


def fill(page: Page, acme: Project, file: Path, name: str) -> None:
    page.goto(f"/t/{acme.tenant_id}/adapters")
    page.get_by_role("link", name="New adapter").first.click()
    page.locator("[name=slug]").fill(name)
    page.locator("[name=file]").set_input_files(file)
    page.get_by_role("button", name="Create adapter").click()


def test_a_zip_is_sent_in_parts_and_seen_ready(
    browser: Watched, acme: Project, url: str, cookies: dict[str, str], tmp_path: Path
) -> None:
    browser.expect(422)
    page = signed_in(browser.open(), url, cookies)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    # A name that cannot be does not cost the file.
    fill(page, acme, a_zip(tmp_path), "Support Team")
    expect(page.locator("[data-kept]")).to_contain_text("support.zip")
    assert [each for each in asked if each.endswith("/parts")]
    page.locator("[name=slug]").fill("support")
    page.get_by_role("button", name="Create adapter").click()
    page.wait_for_url("**/versions/*")
    expect(page.locator("#state .badge")).to_have_text("queued")
    assert look_at(page.url) == "ready"
    expect(page.locator("#state .badge")).to_have_text("ready", timeout=_READY_MS)
    page.get_by_role("link", name="acme/support", exact=True).click()
    expect(page.locator("#list")).to_contain_text("100 %")


def test_another_version_is_promoted_from_the_table(
    browser: Watched, acme: Project, url: str, cookies: dict[str, str], tmp_path: Path
) -> None:
    page = signed_in(browser.open(), url, cookies)
    fill(page, acme, a_zip(tmp_path), "support")
    page.wait_for_url("**/versions/*")
    assert look_at(page.url) == "ready"
    page.get_by_role("link", name="acme/support", exact=True).click()
    expect(page.locator("#list")).to_contain_text("100 %")
    page.get_by_role("link", name="New version").first.click()
    page.locator("[name=file]").set_input_files(a_zip(tmp_path, lora_alpha=2))
    page.get_by_role("button", name="Add version").click()
    expect(page.locator("#state .badge")).to_have_text("queued")
    assert look_at(page.url) == "ready"
    page.get_by_role("link", name="acme/support", exact=True).click()
    # A person's click: Playwright refuses it where something else lies over the button.
    page.get_by_role("button", name="Promote").click()
    second = page.locator("#list tbody tr").filter(has_text="Version 2")
    expect(second).to_contain_text("100 %")


@pytest.mark.rare
def test_without_javascript_the_form_takes_the_file_and_tells_why_it_is_refused(
    browser: Watched, acme: Project, url: str, cookies: dict[str, str], tmp_path: Path
) -> None:
    chromium = browser.open().context.browser
    assert chromium is not None
    plain = chromium.new_context(base_url=url, java_script_enabled=False)
    page = signed_in(plain.new_page(), url, cookies)
    fill(page, acme, a_zip(tmp_path, use_dora=True), "support")
    page.wait_for_url("**/versions/*")
    assert look_at(page.url) == "refused"
    page.reload()
    expect(page.locator("#state .badge")).to_have_text("refused")
    expect(page.locator(".notice[data-kind=bad]")).to_contain_text("DoRA")
    with ThreadPoolExecutor(max_workers=1) as pool:
        assert pool.submit(_count).result() == 1


def _count() -> int:
    from django.db import connection

    try:
        with operator_scope("test"):
            return AdapterVersion.objects.count()
    finally:
        connection.close()
