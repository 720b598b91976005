"""An upload from its first call to its file, over HTTP."""

import hashlib
import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from inference.blobs.opening import blob_store
from inference.blobs.sweep import GRACE, blob_problems, sweep_blobs
from inference.models import Upload, UploadPart
from inference.models.upload import LIFETIME, REMEMBERED, UploadPurpose
from inference.uploads.errors import NoSuchUpload, UploadNotPending
from inference.uploads.expiry import expire_uploads
from inference.uploads.files import discard_file, read_file, take_file
from inference.uploads.ids import parse_upload_id
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.offboarding.closing import close_tenant
from tests.support.blobs.uploader import Uploader, code_of, stored
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db(transaction=True)
DATA = os.urandom(3_000_000)
PARTS = [DATA[:1_200_000], DATA[1_200_000:1_200_007], DATA[1_200_007:]]


def content(house: House, upload_id: str) -> bytes:
    return b"".join(read_file(house.tenant, parse_upload_id(upload_id)))


def problems() -> list[str]:
    with operator_scope("test"):
        return list(blob_problems(now=timezone.now() + timedelta(days=1)))


def completed(uploader: Uploader, data: bytes = DATA) -> str:
    upload_id = uploader.begin(len(data))
    assert uploader.complete(upload_id, uploader.part(upload_id, data)).status_code == 200
    return upload_id


def test_parts_make_a_file_in_the_order_that_is_asked_for(alice: Uploader, acme: House) -> None:
    upload_id = alice.begin(len(DATA))
    third, first, second = (alice.part(upload_id, PARTS[number]) for number in (2, 0, 1))
    answer = alice.complete(upload_id, first, second, third, md5=hashlib.md5(DATA).hexdigest())  # noqa: S324
    upload = answer.json()
    assert (upload["object"], upload["status"], upload["bytes"]) == (
        "upload",
        "completed",
        len(DATA),
    )
    assert (upload["file"]["object"], upload["file"]["bytes"]) == ("file", len(DATA))
    assert upload["file"]["id"] == upload_id.replace("upload_", "file-")
    assert content(acme, upload_id) == DATA
    assert problems() == []


def test_what_lies_in_the_store_is_sealed(alice: Uploader, blob_folder: Path) -> None:
    completed(alice, b"a tenant's own words" * 100)
    files = [file for file in blob_folder.rglob("*") if file.is_file()]
    assert len(files) == 1
    assert b"own words" not in files[0].read_bytes()
    assert oct(blob_folder.stat().st_mode)[-3:] == "700"


def test_an_upload_that_was_cut_goes_on(alice: Uploader, acme: House) -> None:
    upload_id = alice.begin(len(DATA))
    alice.part(upload_id, PARTS[0])
    # Another process, which knows the id alone.
    known = alice.get(f"/{upload_id}").json()
    assert known["status"] == "pending"
    (first,) = known["parts"]
    assert (first["bytes"], first["md5"]) == (len(PARTS[0]), hashlib.md5(PARTS[0]).hexdigest())  # noqa: S324
    rest = [alice.part(upload_id, part) for part in PARTS[1:]]
    assert alice.complete(upload_id, first["id"], *rest).status_code == 200
    assert content(acme, upload_id) == DATA


def test_a_part_that_was_sent_twice_is_named_once(alice: Uploader, acme: House) -> None:
    upload_id = alice.begin(len(DATA))
    lost, again = alice.part(upload_id, PARTS[0]), alice.part(upload_id, PARTS[0])
    rest = [alice.part(upload_id, part) for part in PARTS[1:]]
    assert code_of(alice.complete(upload_id, lost, again, *rest)) == (400, "wrong_parts")
    assert stored() == 4
    assert alice.complete(upload_id, again, *rest).status_code == 200
    assert stored() == 3
    assert content(acme, upload_id) == DATA
    assert problems() == []


def test_completing_and_cancelling_twice_is_doing_it_once(alice: Uploader) -> None:
    upload_id = alice.begin(3)
    part = alice.part(upload_id, b"abc")
    first, second = (alice.complete(upload_id, part) for _ in range(2))
    assert (first.status_code, first.json()) == (second.status_code, second.json())
    assert code_of(alice.complete(upload_id, part, part)) == (400, "upload_not_pending")
    assert code_of(alice.cancel(upload_id)) == (400, "upload_not_pending")
    assert code_of(alice.send(upload_id, b"abc")) == (400, "upload_not_pending")
    other = alice.begin(3)
    assert [alice.cancel(other).json()["status"] for _ in range(2)] == ["cancelled"] * 2
    assert code_of(alice.complete(other, part)) == (400, "upload_not_pending")


def test_cancelling_deletes_what_has_come(alice: Uploader) -> None:
    upload_id = alice.begin(len(DATA))
    alice.part(upload_id, PARTS[0])
    assert stored() == 1
    assert alice.cancel(upload_id).json()["status"] == "cancelled"
    assert stored() == 0
    assert alice.get(f"/{upload_id}").json()["parts"] == []


def test_a_file_is_taken_once_and_discarded(alice: Uploader, acme: House) -> None:
    upload_id = completed(alice)
    with tenant_scope(acme.tenant.id):
        upload = take_file(
            acme.tenant, upload_id.replace("upload_", "file-"), UploadPurpose.ADAPTER
        )
        with pytest.raises(UploadNotPending):
            take_file(acme.tenant, upload_id, UploadPurpose.ADAPTER)
    with operator_scope("test"):
        assert expire_uploads(timezone.now() + 2 * LIFETIME) == 0
    assert content(acme, upload_id) == DATA
    for _ in range(2):
        with tenant_scope(acme.tenant.id):
            discard_file(acme.tenant, upload.id)
    assert stored() == 0
    with pytest.raises(NoSuchUpload):
        content(acme, upload_id)
    assert problems() == []


def test_what_nobody_finishes_or_takes_expires(alice: Uploader) -> None:
    pending, file = alice.begin(len(DATA)), completed(alice)
    alice.part(pending, PARTS[0])
    now = timezone.now()
    with operator_scope("test"):
        assert expire_uploads(now + LIFETIME - timedelta(minutes=1)) == 0
        assert expire_uploads(now + LIFETIME + timedelta(minutes=1)) == 2
    assert stored() == 0
    for upload_id in (pending, file):
        assert alice.get(f"/{upload_id}").json()["status"] == "expired"
        assert code_of(alice.send(upload_id, b"x")) == (400, "upload_not_pending")
    with operator_scope("test"):
        expire_uploads(now + LIFETIME + REMEMBERED + timedelta(minutes=2))
        assert not Upload.objects.exists()


def test_an_upload_is_over_at_its_time_whenever_the_sweep_comes(alice: Uploader) -> None:
    upload_id = alice.begin(3)
    part = alice.part(upload_id, b"abc")
    with operator_scope("test"):
        Upload.objects.update(expires_at=timezone.now())
    assert alice.get(f"/{upload_id}").json()["status"] == "expired"
    assert code_of(alice.complete(upload_id, part)) == (400, "upload_not_pending")


def test_closing_a_tenant_deletes_its_files_and_leaves_others(
    alice: Uploader, bob: Uploader, acme: House, globex: House
) -> None:
    completed(alice)
    theirs = completed(bob)
    with operator_scope("test"):
        close_tenant(acme.tenant)
    assert stored() == 1
    assert content(globex, theirs) == DATA
    with operator_scope("test"):
        assert not Upload.objects.filter(tenant=acme.tenant).exists()
    assert problems() == []
    assert alice.get("/upload_" + "0" * 32).status_code == 401


def test_a_blob_on_no_record_is_swept_after_its_grace(alice: Uploader, acme: House) -> None:
    upload_id = completed(alice)
    # A process that ended between the blob and its row.
    blob_store().put(f"uploads/{acme.tenant.id.hex}/orphan/one", [b"x"])
    assert len(problems()) == 1
    with operator_scope("test"):
        assert sweep_blobs() == 0
        assert sweep_blobs(now=timezone.now() + GRACE + timedelta(minutes=1)) == 1
    assert problems() == []
    assert content(acme, upload_id) == DATA


def test_what_a_killed_process_half_wrote_is_swept(alice: Uploader, blob_folder: Path) -> None:
    completed(alice)
    half = blob_folder / "uploads" / "half#1"
    half.write_bytes(b"half")
    with operator_scope("test"):
        sweep_blobs()
        assert half.exists()
        sweep_blobs(now=timezone.now() + GRACE + timedelta(minutes=1))
    assert not half.exists()
    assert stored() == 1


def test_a_row_without_its_blob_is_found(alice: Uploader) -> None:
    completed(alice)
    blob_store().delete(*[blob.path for blob in blob_store().list()])
    assert len(problems()) == 1


def test_an_upload_is_neither_found_nor_used_by_another_tenant(
    alice: Uploader, bob: Uploader, globex: House
) -> None:
    upload_id = alice.begin(3)
    part = alice.part(upload_id, b"abc")
    own = bob.begin(3)
    unknown = "upload_" + "0" * 32
    for theirs, nothing in (
        (bob.get(f"/{upload_id}"), bob.get(f"/{unknown}")),
        (bob.send(upload_id, b"abc"), bob.send(unknown, b"abc")),
        (bob.complete(upload_id, part), bob.complete(unknown, part)),
        (bob.cancel(upload_id), bob.cancel(unknown)),
    ):
        assert code_of(theirs) == code_of(nothing) == (404, "not_found")
        assert theirs.json() == nothing.json()
    assert code_of(bob.complete(own, part)) == (400, "wrong_parts")
    assert alice.complete(upload_id, part).status_code == 200
    with tenant_scope(globex.tenant.id):
        with pytest.raises(NoSuchUpload):
            take_file(globex.tenant, upload_id, UploadPurpose.ADAPTER)
        assert not UploadPart.objects.exists()
