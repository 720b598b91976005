"""What tenants keep in the store of blobs: the rows say what lies there, reports and exports tell
it, fsck compares both."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.sealed import FRAME_BYTES, sealed_size
from inference.adapters import intake
from inference.adapters.bounds import used_bytes
from inference.adapters.intake import add_uploaded_version
from inference.adapters.lifecycle import archive_adapter, delete_adapter, finish_deletions
from inference.adapters.storage import Kept, storage_of
from inference.blobs.opening import blob_store
from inference.blobs.sweep import blob_problems, sweep_blobs
from inference.models import AdapterVersion, Upload, UploadPart
from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import Project, User
from tenants.offboarding.export import tenant_records
from tests.support.adapter_uploads.upload import BASE as PUBLISHED
from tests.support.adapter_uploads.upload import files, zipped
from tests.support.adapters.records import an_adapter
from tests.support.api_client import ApiClient
from tests.support.blobs.uploader import Uploader
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db(transaction=True)
ARCHIVE = zipped(files())


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path, redis: Redis) -> None:
    settings.PENSTOCK_BLOB_STORE_URL = f"file:{tmp_path / 'blobs'}"
    settings.CELERY_BROKER_URL = "memory://"
    redis.set(keys.pool_adapter_base("pool-a"), codec.encode(PUBLISHED))


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        return make_project("Acme", "premium")


@pytest.fixture
def globex() -> Project:
    with operator_scope("test"):
        return make_project("Globex", "standard")


def key_of(project: Project) -> str:
    with operator_scope("test"):
        return issue_api_key(project, scopes=["adapters:write", "usage:read"]).key


def uploader(project: Project) -> Uploader:
    return Uploader(key=key_of(project), http=Client())


def a_version(project: Project) -> AdapterVersion:
    """One whose upload is complete, and not looked at yet."""
    alice = uploader(project)
    upload_id = alice.begin(len(ARCHIVE))
    file_id = alice.complete(upload_id, alice.part(upload_id, ARCHIVE)).json()["file"]["id"]
    with operator_scope("test"):
        return add_uploaded_version(an_adapter(project.tenant), file_id)


def kept(project: Project | None) -> tuple[Kept, Kept]:
    with operator_scope("test"):
        found = storage_of(project.tenant if project else None)
    return found.adapters, found.uploads


def in_store() -> int:
    return sum(blob.size_bytes for blob in blob_store().list())


def test_the_rows_say_what_lies_in_the_store(acme: Project, globex: Project) -> None:
    version = a_version(acme)
    pending = uploader(acme)
    upload_id = pending.begin(5_000_000)
    pending.part(upload_id, os.urandom(2_000_000))
    adapters, uploads = kept(acme)
    assert (adapters.stored_bytes, adapters.counted_bytes) == (0, len(ARCHIVE))
    assert (uploads.count, uploads.counted_bytes) == (2, len(ARCHIVE) + 5_000_000)
    assert uploads.stored_bytes == sealed_size(len(ARCHIVE)) + sealed_size(2_000_000) == in_store()

    assert intake.validate_version(version.pk) == "ready"
    a_version(globex)
    adapters, uploads = kept(acme)
    others = kept(globex)
    assert (adapters.count, adapters.stored_bytes) == (1, adapters.counted_bytes)
    assert uploads.counted_bytes == 5_000_000
    stored = [each.stored_bytes for each in (adapters, uploads, *others)]
    assert sum(stored) == in_store() and others[1].stored_bytes == sealed_size(len(ARCHIVE))
    everybody = kept(None)
    assert sum(each.stored_bytes for each in everybody) == in_store()
    assert [each.max_bytes for each in everybody] == [None, None]
    with operator_scope("test"):
        assert used_bytes(acme.tenant) == adapters.counted_bytes
        assert adapters.max_bytes == acme.tenant.tier.max_adapter_bytes


def test_what_is_deleted_is_counted_until_it_is_gone(acme: Project) -> None:
    version = a_version(acme)
    intake.validate_version(version.pk)
    before = kept(acme)[0]
    with operator_scope("test"):
        archive_adapter(version.adapter)
    assert kept(acme)[0] == Kept(
        count=0,
        stored_bytes=before.stored_bytes,
        counted_bytes=before.stored_bytes,
        max_bytes=before.max_bytes,
    )
    with operator_scope("test"):
        delete_adapter(version.adapter)
        AdapterVersion.objects.update(delete_at=version.created_at)
        assert finish_deletions() == 1
    assert kept(acme)[0].stored_bytes == 0


@pytest.mark.parametrize("size", [1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 2**40 + 7])
def test_a_parts_sealed_bytes_are_those_that_sealing_makes(acme: Project, size: int) -> None:
    with operator_scope("test"):
        upload_id = uploader(acme).begin(10)
        upload = Upload.objects.get()
        assert upload_id.endswith(upload.id.hex)
        UploadPart.objects.create(tenant=acme.tenant, upload=upload, size_bytes=size, md5="0" * 32)
        UploadPart.objects.create(tenant=acme.tenant, upload=upload, size_bytes=size, md5="0" * 32)
        assert storage_of(acme.tenant).uploads.stored_bytes == 2 * sealed_size(size)


def test_a_tenant_sees_its_own_alone(acme: Project, globex: Project) -> None:
    intake.validate_version(a_version(acme).pk)
    intake.validate_version(a_version(globex).pk)
    with tenant_scope(acme.tenant_id):
        assert storage_of(acme.tenant).adapters.count == 1
        assert storage_of(globex.tenant).adapters.stored_bytes == 0
    mine = ApiClient(acme.tenant_id, key=key_of(acme))
    told = mine.get("usage", model="none", group_by="model").json()
    adapters, uploads = kept(acme)
    assert told["data"] == []
    assert told["storage"]["adapters"] == {
        "count": 1,
        "stored_bytes": adapters.stored_bytes,
        "counted_bytes": adapters.stored_bytes,
        "max_bytes": adapters.max_bytes,
    }
    assert told["storage"]["uploads"]["counted_bytes"] == uploads.counted_bytes == 0
    assert mine.get("/api/v1/usage").json()["storage"] == told["storage"]
    assert mine.get(f"/api/v1/tenants/{globex.tenant_id}/usage").status_code == 404
    assert "storage" not in mine.get("costs").json()


def test_operators_see_one_tenants_or_all(acme: Project, globex: Project) -> None:
    for project in (acme, globex):
        intake.validate_version(a_version(project).pk)
    with operator_scope("test"):
        operator = User.objects.create_user("operator@penstock.example", "x" * 20, is_staff=True)
    operator.user_permissions.add(Permission.objects.get(codename="view_usagerecord"))
    http = Client()
    http.force_login(operator)
    one = http.get("/api/v1/usage", {"tenant_id": str(acme.tenant_id)}).json()["storage"]
    everybody = http.get("/api/v1/usage").json()["storage"]
    assert one["adapters"]["max_bytes"] and everybody["adapters"]["max_bytes"] is None
    assert (one["adapters"]["count"], everybody["adapters"]["count"]) == (1, 2)
    nobody = http.get("/api/v1/usage", {"tenant_id": "0" * 32}).json()
    assert nobody["storage"] is None


def test_the_export_tells_it(acme: Project) -> None:
    intake.validate_version(a_version(acme).pk)
    with tenant_scope(acme.tenant_id):
        (told,) = [row for row in tenant_records(acme.tenant) if row["kind"] == "storage"]
    adapters, _ = kept(acme)
    assert told["adapters"]["stored_bytes"] == adapters.stored_bytes
    assert told["adapters"]["max_bytes"] == adapters.max_bytes


def test_fsck_finds_a_blob_of_another_size_than_its_row_says(acme: Project) -> None:
    version = a_version(acme)
    pending = uploader(acme)
    pending.part(pending.begin(50), b"x" * 50)
    intake.validate_version(version.pk)

    def found() -> list[str]:
        with operator_scope("test"):
            return list(blob_problems())

    assert found() == []
    # The row itself never changes.
    with operator_scope("test"):
        version.refresh_from_db()
    blob_store().put(version.path, [b"another"])
    (problem,) = found()
    assert version.path in problem and str(version.stored_bytes) in problem
    with operator_scope("test"):
        UploadPart.objects.update(size_bytes=51)
    assert len(found()) == 2
    with operator_scope("test"):
        # What is on record is somebody's, whatever its size.
        assert sweep_blobs(now=timezone.now() + timedelta(days=1)) == 0
