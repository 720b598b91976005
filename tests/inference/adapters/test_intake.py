"""From an upload to a version that workers find: by the public API, the jail and a real store."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED

import pytest
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.policy import AdapterPolicy
from gpu_workers.protocol.sealed import open_sealed, open_stream
from inference.adapters import intake
from inference.adapters.lifecycle import delete_adapter, delete_version, finish_deletions
from inference.adapters.validation.validator import validate
from inference.blobs.opening import blob_store
from inference.errors import InferenceError
from inference.models import Adapter, AdapterVersion, Upload
from inference.models.upload import UploadStatus
from inference.uploads.errors import NoSuchUpload
from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope
from tenants.models import DataKey, Project, Tier
from tenants.offboarding.closing import close_tenant
from tests.support.adapter_uploads.upload import BASE as PUBLISHED
from tests.support.adapter_uploads.upload import arrays, config, files, safetensors, zipped
from tests.support.adapters.a_worker import a_worker, prefetches
from tests.support.adapters.records import BASE, a_base
from tests.support.blobs.uploader import Uploader, stored
from tests.support.projects import make_project
from tests.support.workers.adapters.full_disk import files_of_at_most

pytestmark = pytest.mark.django_db(transaction=True)
POOL = "pool-a"


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path, redis: Redis) -> None:
    settings.PENSTOCK_BLOB_STORE_URL = f"file:{tmp_path / 'blobs'}"
    settings.CELERY_BROKER_URL = "memory://"
    redis.set(keys.pool_adapter_base(POOL), codec.encode(PUBLISHED))


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        project = make_project("Acme", "premium")
        a_base()
    return project


@pytest.fixture
def alice(acme: Project) -> Uploader:
    with operator_scope("test"):
        key = issue_api_key(acme, scopes=["adapters:write"]).key
    return Uploader(key=key, http=Client())


def uploaded(alice: Uploader, data: bytes) -> str:
    upload_id = alice.begin(len(data))
    answer = alice.complete(upload_id, alice.part(upload_id, data))
    assert answer.status_code == 200, answer.content
    file_id: str = answer.json()["file"]["id"]
    return file_id


def call(alice: Uploader, acme: Project, path: str, body: object) -> Any:
    return alice.http.post(
        f"/api/v1/tenants/{acme.tenant_id}/adapters{path}",
        json.dumps(body),
        content_type="application/json",
        headers=alice.headers,
    )


def a_version(alice: Uploader, acme: Project, data: bytes) -> AdapterVersion:
    made = call(alice, acme, "", {"slug": "support", "model": BASE})
    assert made.status_code == 201, made.content
    path = f"/{made.json()['id']}/versions"
    answer = call(alice, acme, path, {"file_id": uploaded(alice, data)})
    assert answer.status_code == 201, answer.content
    assert answer.json()["state"] == "queued"
    with operator_scope("test"):
        return AdapterVersion.objects.get(pk=answer.json()["id"])


def again(version: AdapterVersion) -> AdapterVersion:
    with operator_scope("test"):
        return AdapterVersion.objects.select_related("adapter__tenant").get(pk=version.pk)


def test_an_upload_becomes_a_version_that_workers_and_gateways_know(
    alice: Uploader, acme: Project, redis: Redis
) -> None:
    version = a_version(alice, acme, zipped(files()))
    assert intake.validate_version(version.pk) == "ready"
    version = again(version)
    assert (version.rank, version.base_digest) == (4, PUBLISHED.digest)

    row: Any = redis.hget(keys.pool_adapter_sources(POOL), version.opaque_name)
    source = codec.decode_adapter_source(row)
    blob = blob_store().look(version.path)
    assert source.size_bytes == blob.size_bytes == version.stored_bytes
    plain = b"".join(open_stream(blob_store().get(version.path), source.key))
    assert len(plain) < source.size_bytes
    with operator_scope("test"):
        data_key = DataKey.objects.key_of(version.adapter.tenant)
    assert b"".join(open_sealed(blob_store().get(version.path), data_key)) == plain
    assert version.path in source.url

    policy: Any = redis.hget(keys.policy_adapters(), "acme/support")
    shown: AdapterPolicy = codec.decode_adapter(policy)
    assert [(each.adapter, each.permille) for each in shown.versions] == [
        (version.opaque_name, 1000)
    ]
    # What was uploaded is nobody's any more, what is stored is the version's.
    with operator_scope("test"):
        assert Upload.objects.get().status == UploadStatus.EXPIRED
    assert intake.validate_version(version.pk) == "ready"


def test_workers_know_where_a_version_is_before_a_gateway_lets_anybody_ask_for_it(
    alice: Uploader, acme: Project, redis: Redis
) -> None:
    version = a_version(alice, acme, zipped(files()))
    with redis.monitor() as monitor:  # type: ignore[no-untyped-call]
        assert intake.validate_version(version.pk) == "ready"
        redis.echo("validated")
        commands: list[str] = []
        while not commands or not commands[-1].startswith("ECHO"):
            commands.append(monitor.next_command()["command"])
    naming = [command for command in commands if again(version).opaque_name in command]
    told_workers = [keys.pool_adapter_sources(POOL) in command for command in naming]
    told_gateways = [keys.policy_adapters() in command for command in naming]
    assert told_workers.index(True) < told_gateways.index(True)


def test_what_becomes_ready_is_got_by_a_worker_before_anybody_asks(
    alice: Uploader, acme: Project, redis: Redis
) -> None:
    cache.clear()
    a_worker(redis, POOL)
    version = a_version(alice, acme, zipped(files()))
    intake.validate_version(version.pk)
    version = again(version)
    assert prefetches(redis, POOL) == [version.opaque_name]
    row: Any = redis.hget(keys.pool_adapter_sources(POOL), version.opaque_name)
    assert codec.decode_adapter_source(row).needs_probe


def test_an_upload_that_is_no_adapter_is_refused_with_its_reason(
    alice: Uploader, acme: Project, redis: Redis
) -> None:
    version = a_version(alice, acme, b"this is no archive at all")
    assert intake.validate_version(version.pk) == "refused"
    assert again(version).refusal_code == "archive_kind"
    assert redis.hlen(keys.pool_adapter_sources(POOL)) == 0
    with operator_scope("test"):
        assert Upload.objects.get().status == UploadStatus.EXPIRED


def test_a_rank_beyond_the_tier_is_refused(alice: Uploader, acme: Project) -> None:
    with operator_scope("test"):
        Tier.objects.update(max_adapter_rank=3)
    version = a_version(alice, acme, zipped(files()))
    assert intake.validate_version(version.pk) == "refused"
    assert again(version).refusal_code == "rank"


def test_without_a_worker_that_has_told_its_base_it_waits(
    alice: Uploader, acme: Project, redis: Redis
) -> None:
    redis.delete(keys.pool_adapter_base(POOL))
    version = a_version(alice, acme, zipped(files()))
    with pytest.raises(intake.ValidationDeferred):
        intake.validate_version(version.pk)
    assert again(version).state == "validating"
    redis.set(keys.pool_adapter_base(POOL), codec.encode(PUBLISHED))
    assert intake.validate_version(version.pk) == "ready"


def test_what_waits_for_a_worker_says_so_and_can_be_deleted(
    alice: Uploader, acme: Project, redis: Redis
) -> None:
    redis.delete(keys.pool_adapter_base(POOL))
    version = a_version(alice, acme, zipped(files()))
    path = f"/{version.adapter_id}/versions/{version.pk}"
    address = f"/api/v1/tenants/{acme.tenant_id}/adapters{path}"
    assert alice.http.get(address, headers=alice.headers).json()["waits_for_worker"] is True
    assert alice.http.delete(address, headers=alice.headers).status_code == 204
    told = alice.http.get(address, headers=alice.headers).json()
    assert (told["state"], told["waits_for_worker"]) == ("refused", False)
    assert told["refusal"]["code"] == "withdrawn"
    assert stored() == 0
    redis.set(keys.pool_adapter_base(POOL), codec.encode(PUBLISHED))
    assert intake.validate_version(version.pk) == "refused"


def test_nobody_is_asked_to_look_at_what_waits_for_a_worker(
    alice: Uploader, acme: Project, redis: Redis
) -> None:
    redis.delete(keys.pool_adapter_base(POOL))
    version = a_version(alice, acme, zipped(files()))
    later = version.created_at + timedelta(minutes=10)
    with operator_scope("test"):
        assert intake.requeue_stalled_validations(later) == 0
        redis.set(keys.pool_adapter_base(POOL), codec.encode(PUBLISHED))
        assert intake.requeue_stalled_validations(later) == 1


def test_who_validates_what_another_has_made_ready_takes_nothing_from_it(
    alice: Uploader, acme: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second validator, begun because the first was slow, finds the upload gone."""
    version = a_version(alice, acme, zipped(files()))

    def after_the_first(*_: Any) -> Any:
        monkeypatch.setattr("inference.adapters.intake.validate", validate)
        assert intake.validate_version(version.pk) == "ready"
        raise NoSuchUpload

    monkeypatch.setattr("inference.adapters.intake.validate", after_the_first)
    assert intake.validate_version(version.pk) == "ready"
    assert [blob.path for blob in blob_store().list("adapters")] == [again(version).path]


def test_a_version_that_is_deleted_while_it_is_validated_leaves_nothing(
    alice: Uploader, acme: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = a_version(alice, acme, zipped(files()))

    def and_delete(*given: Any) -> Any:
        found = validate(*given)
        with operator_scope("test"):
            delete_version(version)
            finish_deletions()
        return found

    monkeypatch.setattr("inference.adapters.intake.validate", and_delete)
    assert intake.validate_version(version.pk) == "deleted"
    assert again(version).state == "deleted"
    assert stored() == 0 and not list(blob_store().list("adapters"))


@pytest.mark.parametrize("ends", ["deleted", "closed"])
def test_what_is_stored_of_a_version_goes_with_it_at_once(
    ends: str, alice: Uploader, acme: Project
) -> None:
    version = a_version(alice, acme, zipped(files()))
    assert intake.validate_version(version.pk) == "ready"
    assert list(blob_store().list("adapters"))
    with operator_scope("test"):
        if ends == "closed":
            close_tenant(acme.tenant)
        else:
            delete_adapter(again(version).adapter)
            finish_deletions(datetime.now(UTC) + timedelta(days=1))
    assert not list(blob_store().list("adapters"))


def test_a_file_is_used_once(alice: Uploader, acme: Project) -> None:
    version = a_version(alice, acme, zipped(files()))
    path = f"/{version.adapter_id}/versions"
    with operator_scope("test"):
        upload = again(version).upload
    assert upload is not None
    used = upload.file_id
    assert call(alice, acme, path, {"file_id": used}).status_code == 400
    for file_id in ("file-" + "0" * 32, "../../etc/passwd", "", "x" * 60):
        answer = call(alice, acme, path, {"file_id": file_id})
        assert answer.status_code in (400, 404)
    with operator_scope("test"):
        assert AdapterVersion.objects.count() == 1


def test_anothers_file_is_as_one_that_is_not_there(alice: Uploader, acme: Project) -> None:
    with operator_scope("test"):
        globex = make_project("Globex", "premium")
        key = issue_api_key(globex, scopes=["adapters:write"]).key
    theirs = uploaded(Uploader(key=key, http=Client()), zipped(files()))
    made = call(alice, acme, "", {"slug": "support", "model": BASE})
    path = f"/{made.json()['id']}/versions"
    answers = [call(alice, acme, path, {"file_id": each}) for each in (theirs, "file-" + "0" * 32)]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json()["error"]["code"] == answers[1].json()["error"]["code"]


def test_an_upload_that_is_damaged_in_the_store_is_refused(alice: Uploader, acme: Project) -> None:
    version = a_version(alice, acme, zipped(files()))
    for blob in blob_store().list("uploads"):
        data = b"".join(blob_store().get(blob.path))
        blob_store().put(blob.path, [data[:-1]])
    assert intake.validate_version(version.pk) == "refused"
    assert again(version).refusal_code == "upload_lost"
    assert stored() == 0


def test_a_key_that_lists_adapters_makes_no_other(acme: Project) -> None:
    with operator_scope("test"):
        key = issue_api_key(acme, scopes=["adapters:write"], allowed_adapters=["acme/support"]).key
    narrow = Uploader(key=key, http=Client())
    refused = call(narrow, acme, "", {"slug": "other", "model": BASE})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "adapter_not_allowed")
    assert call(narrow, acme, "", {"slug": "support", "model": BASE}).status_code == 201
    with operator_scope("test"):
        assert Adapter.objects.count() == 1


def test_a_disk_without_room_refuses_no_upload(alice: Uploader, acme: Project) -> None:
    """It is looked at again, by Celery, which knows the error as one that goes by."""
    rank = PUBLISHED.max_rank
    made = files(tensors=safetensors(arrays(rank=rank)), settings=config(r=rank))
    large = zipped(made, method=ZIP_STORED)
    version = a_version(alice, acme, large)
    with files_of_at_most(len(large) // 2), pytest.raises(InferenceError) as told:
        intake.validate_version(version.pk)
    assert told.value.to_wire().code == "disk_full"
    assert again(version).state == "validating"
    assert intake.validate_version(version.pk) == "ready"


def test_workers_hear_of_a_pin_once_it_is_committed(
    alice: Uploader, acme: Project, redis: Redis
) -> None:
    def told() -> dict[str, int]:
        row: Any = redis.get(keys.pool_adapter_pins(POOL))
        return {} if row is None else codec.decode_adapter_pins(row).places

    version = a_version(alice, acme, zipped(files()))
    assert intake.validate_version(version.pk) == "ready"
    path = f"/{version.adapter_id}"
    pinned = call(alice, acme, f"{path}/pin", {})
    assert pinned.status_code == 200, pinned.content
    assert pinned.json()["pinned_at"] and pinned.json()["is_pin_honoured"]
    assert told() == {again(version).opaque_name: 1}
    with operator_scope("test"):
        Tier.objects.update(max_pinned_adapters=0)
    refused = call(alice, acme, "", {"slug": "other", "model": BASE}).json()["id"]
    refused = call(alice, acme, f"/{refused}/pin", {})
    assert (refused.status_code, refused.json()["error"]["code"]) == (
        409,
        "too_many_pinned_adapters",
    )
    unpinned = call(alice, acme, f"{path}/unpin", {})
    assert unpinned.json()["pinned_at"] is None
    assert told() == {}
