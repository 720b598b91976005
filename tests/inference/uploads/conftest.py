"""Uploads over HTTP with API keys of Acme and Globex, and a store of blobs for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings

from inference.adapters.offboarding import delete_adapters
from inference.models import Upload
from inference.tasks import compute_digest
from inference.uploads import digests
from tenants.isolation.scoping import operator_scope
from tests.support.blobs.uploader import Uploader
from tests.support.two_tenants import House, TwoTenants


@pytest.fixture(autouse=True)
def _no_calls_counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def blob_folder(settings: Settings, tmp_path: Path) -> Path:
    folder = tmp_path / "blobs"
    settings.PENSTOCK_BLOB_STORE_URL = f"file:{folder}"
    return folder


@pytest.fixture(autouse=True)
def _computed_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests, by the test itself in place of a Celery worker."""
    monkeypatch.setattr(digests, "_send", lambda arguments: compute_digest(*arguments))


@pytest.fixture
def emptied(houses: TwoTenants) -> TwoTenants:
    """Acme and Globex without an upload, and without adapters, which are in no store."""
    with operator_scope("test"):
        Upload.objects.all().delete()
        for house in (houses.acme, houses.globex):
            delete_adapters(house.tenant)
    return houses


@pytest.fixture
def acme(emptied: TwoTenants) -> House:
    return emptied.acme


@pytest.fixture
def globex(emptied: TwoTenants) -> House:
    return emptied.globex


@pytest.fixture
def alice(acme: House) -> Uploader:
    return Uploader(key=acme.issue(scopes=["adapters:write"]), http=Client())


@pytest.fixture
def bob(globex: House) -> Uploader:
    return Uploader(key=globex.issue(scopes=["adapters:write"]), http=Client())
