"""An adapter's file through the pages: in one form, and in parts as the script sends it."""

import uuid
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import keys
from inference.blobs.opening import blob_store
from inference.models import Adapter, AdapterVersion, Pool, ServedModel, Upload
from inference.models.upload import UploadStatus
from inference.uploads.files import read_file
from tenants.isolation.scoping import operator_scope
from tenants.models import Tier
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.blobs.uploader import Uploader, stored
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = pytest.mark.django_db
DATA = b"PK\x03\x04 not much of an archive"


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path) -> None:
    settings.PENSTOCK_BLOB_STORE_URL = f"file:{tmp_path / 'blobs'}"
    settings.CELERY_BROKER_URL = "memory://"


@pytest.fixture
def alice(signed_in: SignIn, houses: TwoTenants) -> Client:
    with operator_scope("test"):
        Upload.objects.all().delete()
    return signed_in("developer")


@pytest.fixture
def new(acme_address: str) -> str:
    return f"{acme_address}adapters/new"


def a_file(data: bytes = DATA, name: str = "support.zip") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data)


def form(**changes: Any) -> dict[str, Any]:
    return {"slug": "support", "model": "acme-model"} | changes


def made(slug: str = "support") -> list[AdapterVersion]:
    with operator_scope("test"):
        return list(AdapterVersion.objects.filter(adapter__slug=slug))


def bytes_of(version: AdapterVersion, houses: TwoTenants) -> bytes:
    assert version.upload_id is not None
    return b"".join(read_file(houses.acme.tenant, version.upload_id))


def begun(client: Client, acme_address: str, data: bytes = DATA, **fields: Any) -> Any:
    given = {"filename": "support.zip", "bytes": len(data)} | fields
    return client.post(f"{acme_address}adapters/uploads", given)


def sent(client: Client, upload: dict[str, Any], data: bytes) -> Any:
    return client.post(upload["parts"], data, content_type="application/octet-stream")


def in_parts(client: Client, acme_address: str, *parts: bytes) -> str:
    """Send a file in parts, as the script does, and return its id."""
    upload = begun(client, acme_address, b"".join(parts)).json()
    ids = [sent(client, upload, part).json()["id"] for part in parts]
    answer = client.post(upload["complete"], {"part": ids})
    assert answer.status_code == 200, answer.content
    file_id: str = answer.json()["file_id"]
    assert file_id == upload["file_id"]
    return file_id


def test_the_one_model_that_takes_adapters_is_chosen_and_others_say_that_none_does(
    alice: Client, new: str, houses: TwoTenants, empty_redis: Redis
) -> None:
    with operator_scope("test"):
        pool = Pool.objects.create(name="without-adapters")
        ServedModel.objects.create(name="plain-model", pool=pool, context_tokens=2048)
    assert alice.get(new).context["form"]["model"].value() is None
    empty_redis.set(keys.pool_adapter_base(houses.acme.model.pool_id), b"what it says")
    page = alice.get(new)
    assert page.context["form"]["model"].value() == houses.acme.model.name
    assert "plain-model (no worker takes adapters now)" in page.content.decode()


def test_a_plain_form_makes_an_adapter_of_its_file(
    alice: Client, new: str, houses: TwoTenants
) -> None:
    answer = alice.post(new, form(file=a_file()))
    assert answer.status_code == 302, answer.content
    (version,) = made()
    assert answer["Location"].endswith(f"/versions/{version.pk}")
    assert (version.number, version.state, version.upload_bytes) == (1, "queued", len(DATA))
    assert bytes_of(version, houses) == DATA
    assert alice.get(answer["Location"]).context["version"].is_in_progress


def test_parts_make_the_same_file(
    alice: Client, new: str, acme_address: str, houses: TwoTenants
) -> None:
    file_id = in_parts(alice, acme_address, DATA[:5], DATA[5:])
    assert alice.post(new, form(file_id=file_id)).status_code == 302
    (version,) = made()
    assert bytes_of(version, houses) == DATA


def test_a_further_version_is_added_to_an_adapter(
    alice: Client, acme_address: str, houses: TwoTenants
) -> None:
    one = f"{acme_address}adapters/{houses.acme.adapter_version.adapter_id}"
    answer = alice.post(f"{one}/versions/new", {"file": a_file()})
    assert answer.status_code == 302
    assert [version.number for version in made("acme-adapter")] == [3, 2, 1]
    assert alice.post(f"{one}/versions/new", {}).status_code == 422


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"slug": ""}, "slug"),
        ({"slug": "Support Team"}, "slug"),
        ({"slug": "a/b"}, "slug"),
        ({"slug": "a@1"}, "slug"),
        ({"slug": "acme-adapter"}, "slug"),
        ({"model": ""}, "model"),
        ({"model": f"{CANARY}-model"}, "model"),
    ],
)
def test_what_else_is_wrong_does_not_cost_the_file(
    fields: dict[str, str], wrong: str, alice: Client, new: str, houses: TwoTenants
) -> None:
    answer = alice.post(new, form(file=a_file(), **fields))
    assert answer.status_code == 422
    shown = answer.context["form"]
    assert list(shown.errors) == [wrong]
    with operator_scope("test"):
        assert shown.kept.filename == "support.zip"
    assert not made()
    answer = alice.post(new, form(file_id=shown["file_id"].value()))
    assert answer.status_code == 302
    (version,) = made()
    assert bytes_of(version, houses) == DATA


def test_another_file_takes_the_place_of_the_one_that_came_before(
    alice: Client, new: str, houses: TwoTenants
) -> None:
    kept = alice.post(new, form(slug="", file=a_file())).context["form"]["file_id"].value()
    answer = alice.post(new, form(file=a_file(b"another"), file_id=kept))
    assert answer.status_code == 302
    (version,) = made()
    assert bytes_of(version, houses) == b"another"
    with operator_scope("test"):
        assert Upload.objects.filter(status=UploadStatus.COMPLETED).count() == 1


@pytest.mark.parametrize("file", [None, a_file(b""), "not a file"], ids=["none", "empty", "text"])
def test_without_a_file_nothing_is_made(file: Any, alice: Client, new: str) -> None:
    answer = alice.post(new, form(**({} if file is None else {"file": file})))
    assert answer.status_code == 422
    shown = answer.context["form"]
    assert list(shown.errors) == ["file"]
    assert shown["slug"].value() == "support"
    assert not made() and stored() == 0


def test_a_file_beyond_the_tier_is_refused_at_its_field_and_not_stored(
    alice: Client, new: str, acme_address: str
) -> None:
    with operator_scope("test"):
        Tier.objects.update(max_adapter_bytes=len(DATA) - 1)
    answer = alice.post(new, form(file=a_file()))
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == ["file"]
    refused = begun(alice, acme_address)
    assert (refused.status_code, refused.json()["code"]) == (400, "upload_too_large")
    assert not made() and stored() == 0


def test_a_store_that_is_away_is_told_and_leaves_nothing_behind(
    alice: Client, new: str, tmp_path: Path
) -> None:
    blob_store()
    (tmp_path / "blobs").rmdir()
    (tmp_path / "blobs").write_text("no folder")
    answer = alice.post(new, form(file=a_file()))
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == ["file"]
    assert not made()
    with operator_scope("test"):
        assert {upload.status for upload in Upload.objects.all()} == {UploadStatus.CANCELLED}


def test_a_file_is_used_once_and_no_name_of_one_gets_anothers(
    alice: Client, new: str, acme_address: str, houses: TwoTenants
) -> None:
    key = houses.globex.issue(scopes=["adapters:write"])
    bob = Uploader(key=key, http=Client())
    upload_id = bob.begin(len(DATA))
    theirs = bob.complete(upload_id, bob.part(upload_id, DATA)).json()["file"]["id"]
    used = in_parts(alice, acme_address, DATA)
    assert alice.post(new, form(slug="first", file_id=used)).status_code == 302
    for file_id in (theirs, used, "file-" + "0" * 32, "../../etc/passwd", "x" * 200, "a\x00b"):
        answer = alice.post(new, form(file_id=file_id))
        assert answer.status_code == 422, file_id
        assert CANARY not in answer.content.decode()
    assert not made()
    with operator_scope("test"):
        assert Adapter.objects.filter(slug="support").count() == 0


def test_what_is_validated_is_not_dropped_for_another_file(
    alice: Client, new: str, acme_address: str, houses: TwoTenants
) -> None:
    used = in_parts(alice, acme_address, DATA)
    alice.post(new, form(slug="first", file_id=used))
    assert begun(alice, acme_address, replaces=used).status_code == 200
    (version,) = made("first")
    assert bytes_of(version, houses) == DATA


def test_what_was_begun_before_makes_room_for_another_file(
    alice: Client, acme_address: str
) -> None:
    with operator_scope("test"):
        Tier.objects.update(max_adapter_bytes=len(DATA))
    first = begun(alice, acme_address).json()
    assert begun(alice, acme_address).status_code == 429
    second = begun(alice, acme_address, replaces=first["file_id"])
    assert second.status_code == 200
    assert sent(alice, first, DATA).status_code == 400
    assert sent(alice, second.json(), DATA).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"filename": "a.zip"},
        {"filename": "a.zip", "bytes": "0"},
        {"filename": "a.zip", "bytes": "-1"},
        {"filename": "a.zip", "bytes": "many"},
        {"filename": "a.zip", "bytes": str(2**63)},
        {"filename": "a\x00.zip", "bytes": "5"},
    ],
)
def test_an_upload_that_cannot_be_is_not_begun(
    fields: dict[str, str], alice: Client, acme_address: str
) -> None:
    answer = alice.post(f"{acme_address}adapters/uploads", fields)
    assert answer.status_code == 422
    assert answer.json()["message"]
    with operator_scope("test"):
        assert not Upload.objects.exists()


@pytest.mark.parametrize("name", ["../../etc/passwd", "C:\\temp\\passwd", "\u202epasswd", "passwd"])
def test_a_files_name_is_shown_without_its_folder(
    name: str, alice: Client, acme_address: str
) -> None:
    assert begun(alice, acme_address, filename=name).status_code == 200
    with operator_scope("test"):
        assert Upload.objects.get().filename == "passwd"


def test_parts_that_do_not_make_the_file_are_refused(alice: Client, acme_address: str) -> None:
    upload = begun(alice, acme_address).json()
    part = sent(alice, upload, DATA[:-1]).json()["id"]
    for ids in ([part], [part, part], [], ["part_" + "0" * 32], ["x"]):
        answer = alice.post(upload["complete"], {"part": ids})
        assert (answer.status_code, answer.json()["code"]) == (400, "wrong_parts"), ids
    assert sent(alice, upload, DATA + b"x").status_code == 400
    assert sent(alice, upload, b"").status_code == 411


def test_who_may_not_write_uploads_nothing(
    signed_in: SignIn, alice: Client, acme_address: str, new: str
) -> None:
    upload = begun(alice, acme_address).json()
    viewer = signed_in("viewer")
    assert viewer.post(new, form(file=a_file())).status_code == 403
    assert begun(viewer, acme_address).status_code == 403
    assert sent(viewer, upload, DATA).status_code == 403
    assert Client().post(new, form(file=a_file())).status_code == 302
    assert sent(Client(), upload, DATA).status_code == 302
    assert stored() == 0


def test_anothers_upload_takes_no_part(
    alice: Client, acme_address: str, houses: TwoTenants
) -> None:
    key = houses.globex.issue(scopes=["adapters:write"])
    theirs = Uploader(key=key, http=Client()).begin(len(DATA)).removeprefix("upload_")
    address = f"{acme_address}adapters/uploads/{uuid.UUID(theirs)}"
    assert sent(alice, {"parts": f"{address}/parts"}, DATA).status_code == 404
    assert alice.post(f"{address}/complete", {"part": []}).status_code == 404
    assert list(blob_store().list()) == []


def test_a_form_or_part_from_elsewhere_is_refused(
    houses: TwoTenants, alice: Client, acme_address: str, new: str
) -> None:
    upload = begun(alice, acme_address).json()
    client = Client(enforce_csrf_checks=True)
    client.force_login(houses.acme.people["owner"])
    assert client.post(new, form(file=a_file())).status_code == 403
    assert begun(client, acme_address).status_code == 403
    assert sent(client, upload, DATA).status_code == 403
    assert not made() and stored() == 0
