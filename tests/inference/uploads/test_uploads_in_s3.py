"""The same uploads where the store of blobs is S3."""

import hashlib
import os
from collections.abc import Iterator

import pytest
from django.utils import timezone
from pytest_django import Settings

from inference.blobs.sweep import GRACE, blob_problems, sweep_blobs
from inference.uploads.files import discard_file, read_file
from inference.uploads.ids import parse_upload_id
from tenants.isolation.scoping import operator_scope, tenant_scope
from tests.support.blobs.s3_server import CREDENTIALS, S3Server, s3_server
from tests.support.blobs.uploader import Uploader, code_of, stored
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db(transaction=True)
# Beyond what goes to S3 in one piece.
DATA = os.urandom(21_000_000)
PARTS = [DATA[:12_000_000], DATA[12_000_000:]]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(autouse=True)
def in_s3(
    s3: S3Server, blob_folder: object, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    settings.PENSTOCK_BLOB_STORE_URL = s3.url


def test_an_upload_is_completed_read_and_discarded(alice: Uploader, acme: House) -> None:
    upload_id = alice.begin(len(DATA))
    second, first = (alice.part(upload_id, part) for part in reversed(PARTS))
    answer = alice.complete(upload_id, first, second, md5=hashlib.md5(DATA).hexdigest())  # noqa: S324
    assert answer.json()["status"] == "completed"
    parsed = parse_upload_id(upload_id)
    assert b"".join(read_file(acme.tenant, parsed)) == DATA
    with operator_scope("test"):
        assert sweep_blobs(now=timezone.now() + 2 * GRACE) == 0
        assert list(blob_problems(now=timezone.now() + 3 * GRACE)) == []
    with tenant_scope(acme.tenant.id):
        discard_file(acme.tenant, parsed)
    assert stored() == 0


def test_what_is_refused_or_cancelled_leaves_nothing(alice: Uploader) -> None:
    upload_id = alice.begin(10_000_000)
    assert code_of(alice.send(upload_id, PARTS[0])) == (400, "upload_too_large")
    assert stored() == 0
    alice.part(upload_id, PARTS[1])
    assert alice.cancel(upload_id).status_code == 200
    assert stored() == 0
