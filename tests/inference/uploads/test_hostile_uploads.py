"""What must not pass: sizes that lie, parts without end, names that are paths, calls that race."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections
from django.test import Client
from pytest_django import Settings

from inference.models import Upload, UploadPart
from inference.uploads import bounds, uploading
from inference.uploads.errors import UploadNotPending, UploadTooLarge
from inference.uploads.ids import parse_upload_id
from inference.uploads.uploading import add_part
from tenants.isolation.scoping import operator_scope
from tests.support.blobs.uploader import Uploader, a_new_upload, code_of, stored
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"bytes": 0}, "bytes"),
        ({"bytes": -1}, "bytes"),
        ({"bytes": True}, "bytes"),
        ({"bytes": "7"}, "bytes"),
        ({"bytes": 1.5}, "bytes"),
        ({"bytes": 10**30}, "bytes"),
        ({"bytes": None}, "bytes"),
        ({"filename": ""}, "filename"),
        ({"filename": "../../etc/passwd"}, "filename"),
        ({"filename": "a/b"}, "filename"),
        ({"filename": "a\\b"}, "filename"),
        ({"filename": ".."}, "filename"),
        ({"filename": "a\r\nX-Header: b"}, "filename"),
        ({"filename": "a\u202egpj"}, "filename"),
        ({"filename": "x" * 256}, "filename"),
        ({"mime_type": ""}, "mime_type"),
        ({"mime_type": "text/plain\r\n"}, "mime_type"),
        ({"purpose": "assistants"}, "purpose"),
        ({"purpose": "ADAPTER"}, "purpose"),
        ({"purpose": ["adapter"]}, "purpose"),
        ({"expires_after": {"anchor": "created_at", "seconds": 3600}}, "expires_after"),
        ({"tenant_id": "0"}, "tenant_id"),
        ({"status": "completed"}, "status"),
    ],
)
def test_what_is_no_upload_is_refused_by_its_field(
    alice: Uploader, fields: dict[str, object], param: str
) -> None:
    answer = alice.post("", a_new_upload(7) | fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    with operator_scope("test"):
        assert not Upload.objects.exists()


def test_more_than_the_tier_allows_is_refused_at_once_and_in_sum(
    alice: Uploader, bob: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "upload_bytes_allowed", lambda _tenant: 100)
    assert code_of(alice.post("", a_new_upload(101))) == (400, "upload_too_large")
    first = alice.begin(60)
    refused = alice.post("", a_new_upload(41))
    assert code_of(refused) == (429, "storage_limit_reached")
    assert refused["Retry-After"]
    bob.begin(100)
    alice.cancel(first)
    alice.begin(100)


def test_no_more_than_so_many_wait_for_parts(alice: Uploader) -> None:
    for _ in range(bounds.MAX_PENDING):
        alice.begin(1)
    assert code_of(alice.post("", a_new_upload(1))) == (429, "storage_limit_reached")


def test_uploads_that_come_and_go_are_remembered_so_many(
    alice: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "MAX_REMEMBERED", 3)
    for _ in range(3):
        alice.cancel(alice.begin(1))
    assert code_of(alice.post("", a_new_upload(1))) == (429, "storage_limit_reached")


def test_a_part_has_no_more_than_the_upload_was_declared_to_have(alice: Uploader) -> None:
    upload_id = alice.begin(10)
    assert code_of(alice.send(upload_id, b"x" * 11)) == (400, "upload_too_large")
    assert stored() == 0
    # As often as it may be sent anew, and no further.
    for _ in range(bounds.STORED_FOR_EACH_BYTE):
        alice.part(upload_id, b"x" * 10)
    assert code_of(alice.send(upload_id, b"x")) == (400, "upload_too_large")
    assert stored() == bounds.STORED_FOR_EACH_BYTE


def test_a_part_has_at_most_sixty_four_megabytes(
    alice: Uploader, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bounds.MAX_PART_BYTES == 64 * 1024 * 1024
    monkeypatch.setattr(uploading, "MAX_PART_BYTES", 1000)
    upload_id = alice.begin(5000)
    assert code_of(alice.send(upload_id, b"x" * 1001)) == (400, "upload_too_large")
    alice.part(upload_id, b"x" * 1000)


def test_a_stream_that_never_ends_is_left_where_it_is_too_long(
    alice: Uploader, acme: House
) -> None:
    upload_id = alice.begin(3_000_000)
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield bytes(1_000_000)

    with pytest.raises(UploadTooLarge):
        add_part(acme.tenant, parse_upload_id(upload_id), endless())
    assert read == 4
    assert stored() == 0


def test_a_million_parts_end_at_their_bound(
    alice: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "MAX_PARTS", 3)
    upload_id = alice.begin(100)
    for _ in range(3):
        alice.part(upload_id, b"x")
    assert code_of(alice.send(upload_id, b"x")) == (429, "storage_limit_reached")
    many = alice.complete(upload_id, *["part_" + "0" * 32] * 1001)
    assert (many.status_code, many.json()["error"]["param"]) == (400, "part_ids")
    assert stored() == 3


@pytest.mark.parametrize("sizes", [(3,), (3, 3), ()])
def test_what_has_another_size_than_declared_is_no_file(
    alice: Uploader, sizes: tuple[int, ...]
) -> None:
    upload_id = alice.begin(5)
    parts = [alice.part(upload_id, b"x" * size) for size in sizes]
    assert alice.complete(upload_id, *parts).status_code == 400
    assert alice.get(f"/{upload_id}").json()["status"] == "pending"


@pytest.mark.parametrize(
    "wrong",
    ["part_" + "0" * 32, "part_", "", "../../parts", "part_" + "g" * 32, "x" * 80, "\ud800"],
)
def test_what_is_no_part_of_it_is_refused(alice: Uploader, wrong: str) -> None:
    upload_id = alice.begin(5)
    part = alice.part(upload_id, b"12345")
    assert alice.complete(upload_id, part, wrong).status_code == 400
    assert alice.complete(upload_id, part, part).status_code == 400
    assert alice.complete(upload_id, part).status_code == 200


def test_a_part_of_ones_own_other_upload_is_none_of_this(alice: Uploader) -> None:
    first, second = alice.begin(3), alice.begin(3)
    part = alice.part(first, b"abc")
    assert code_of(alice.complete(second, part)) == (400, "wrong_parts")


@pytest.mark.parametrize("digest", ["", "0" * 31, "0" * 33, "g" * 32, 5, "0" * 32])
def test_another_md5_is_refused_and_the_upload_goes_on(alice: Uploader, digest: object) -> None:
    upload_id = alice.begin(3)
    part = alice.part(upload_id, b"abc")
    refused = alice.complete(upload_id, part, md5=digest)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "md5")
    right = hashlib.md5(b"abc").hexdigest().upper()  # noqa: S324
    assert alice.complete(upload_id, part, md5=right).status_code == 200


@pytest.mark.parametrize(
    "upload_id",
    ["upload_1", "x", "upload_" + "A" * 32, "upload_%00", "..%2f..%2fadmin", "upload_" + "0" * 33],
)
def test_what_is_no_id_is_the_id_of_nothing(alice: Uploader, upload_id: str) -> None:
    assert alice.get(f"/{upload_id}").status_code == 404
    assert alice.cancel(upload_id).status_code == 404


def form(alice: Uploader, upload_id: str, body: bytes, kind: str) -> tuple[int, str]:
    answer = alice.http.generic(
        "POST", f"/v1/uploads/{upload_id}/parts", body, content_type=kind, headers=alice.headers
    )
    return code_of(answer)


def test_a_part_is_one_file_in_a_form_and_nothing_else(alice: Uploader) -> None:
    upload_id = alice.begin(100)
    kind = "multipart/form-data; boundary=b"
    disposition = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    file = disposition % (b"data", b'; filename="x"', b"abc")
    other = disposition % (b"other", b"", b"abc")
    for body, expected in (
        (b"", (400, "missing_field")),
        (b"--b--\r\n", (400, "missing_field")),
        (other + b"--b--\r\n", (400, "unknown_field")),
        (file + other + b"--b--\r\n", (400, "unknown_field")),
        (file + file + b"--b--\r\n", (400, "invalid_request")),
        (disposition % (b"data", b"", b"abc") + b"--b--\r\n", (400, "missing_field")),
        (disposition % (b"data", b'; filename="x"', b"") + b"--b--\r\n", (400, "wrong_parts")),
    ):
        got = form(alice, upload_id, body or b"\r\n", kind)
        assert got == expected, body
    assert form(alice, upload_id, b"{}", "application/json") == (415, "unsupported_media_type")
    assert form(alice, upload_id, b"x", "multipart/form-data")[0] == 400
    assert stored() == 0
    assert alice.send(upload_id, b"abc", name="../../../etc/passwd").status_code == 200


def test_who_has_no_scope_no_key_or_a_session_gets_nowhere(acme: House) -> None:
    for scope in ("inference", "usage:read", "keys:write"):
        narrow = Uploader(key=acme.issue(scopes=[scope]), http=Client())
        assert code_of(narrow.post("", a_new_upload(1))) == (403, "missing_scope")
    nobody = Client()
    nobody.force_login(acme.people["owner"])
    answer = nobody.post("/v1/uploads", a_new_upload(1), content_type="application/json")
    assert answer.status_code == 401


def test_a_suspended_tenant_uploads_nothing(alice: Uploader, acme: House) -> None:
    upload_id = alice.begin(3)
    with operator_scope("test"):
        acme.tenant.suspend()
    assert code_of(alice.send(upload_id, b"abc")) == (403, "tenant_suspended")
    assert code_of(alice.post("", a_new_upload(1))) == (403, "tenant_suspended")


def test_of_complete_and_cancel_at_once_one_wins_and_nothing_is_left(alice: Uploader) -> None:
    def act(upload_id: str, part: str | None) -> int:
        uploader = Uploader(key=alice.key, http=Client())
        try:
            answer = uploader.complete(upload_id, part) if part else uploader.cancel(upload_id)
            status: int = answer.status_code
            return status
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as threads:
        for _ in range(8):
            upload_id = alice.begin(3)
            part = alice.part(upload_id, b"abc")
            one = threads.submit(act, upload_id, part)
            other = threads.submit(act, upload_id, None)
            assert sorted([one.result(), other.result()]) == [200, 400]
            state = alice.get(f"/{upload_id}").json()["status"]
            assert state == ("completed" if one.result() == 200 else "cancelled")
    with operator_scope("test"):
        assert UploadPart.objects.count() == stored()


def test_a_part_that_ends_after_its_upload_is_not_kept(alice: Uploader, acme: House) -> None:
    upload_id = alice.begin(3)

    def slow() -> Iterator[bytes]:
        yield b"abc"
        alice.cancel(upload_id)

    with pytest.raises(UploadNotPending):
        add_part(acme.tenant, parse_upload_id(upload_id), slow())
    assert stored() == 0


def test_parts_at_once_are_no_more_than_parts_one_by_one(alice: Uploader) -> None:
    upload_id = alice.begin(10)

    def send(_: int) -> int:
        try:
            uploader = Uploader(key=alice.key, http=Client())
            status: int = uploader.send(upload_id, b"x" * 10).status_code
            return status
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        statuses = sorted(threads.map(send, range(6)))
    assert statuses.count(200) == bounds.STORED_FOR_EACH_BYTE
    assert set(statuses) == {200, 400}
    assert stored() == bounds.STORED_FOR_EACH_BYTE


def test_a_store_that_is_away_is_told_and_leaves_the_upload(
    alice: Uploader, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    upload_id = alice.begin(3)
    here = settings.PENSTOCK_BLOB_STORE_URL
    settings.PENSTOCK_BLOB_STORE_URL = "s3://away?endpoint=http://127.0.0.1:9&region=us-east-1"
    assert code_of(alice.send(upload_id, b"abc")) == (503, "blob_store_away")
    settings.PENSTOCK_BLOB_STORE_URL = here
    assert alice.complete(upload_id, alice.part(upload_id, b"abc")).status_code == 200
