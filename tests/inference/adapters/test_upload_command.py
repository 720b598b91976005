"""manage.py upload_adapter: PEFT's folder, or an archive of it, becomes a version."""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import codec, keys
from inference.adapters import intake
from inference.models import Adapter, AdapterVersion, Upload
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, Project, Tier
from tenants.offboarding.closing import close_tenant
from tests.support.adapter_uploads.upload import BASE as PUBLISHED
from tests.support.adapter_uploads.upload import files, tarred, zipped
from tests.support.adapters.records import BASE, a_base
from tests.support.blobs.uploader import stored
from tests.support.commands import refused, run
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _store(settings: Settings, tmp_path: Path, redis: Redis) -> None:
    settings.PENSTOCK_BLOB_STORE_URL = f"file:{tmp_path / 'blobs'}"
    settings.CELERY_BROKER_URL = "memory://"
    redis.set(keys.pool_adapter_base("pool-a"), codec.encode(PUBLISHED))


@pytest.fixture(autouse=True)
def acme() -> Project:
    with operator_scope("test"):
        project = make_project("Acme", "premium")
        a_base()
    return project


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "peft", files())


def written(folder: Path, contents: Mapping[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return folder


@contextmanager
def validating() -> Iterator[None]:
    """Look at what comes in, as the Celery worker of the queue does."""
    done = Event()

    def work() -> None:
        try:
            while not done.wait(0.05):
                with operator_scope("test"):
                    waiting = AdapterVersion.objects.filter(state="queued")
                    ids = list(waiting.values_list("pk", flat=True))
                for version_id in ids:
                    intake.validate_version(version_id)
        finally:
            connection.close()

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def upload(path: Path, *options: str, name: str = "support") -> tuple[str, ...]:
    return ("upload_adapter", "Acme", name, str(path), *options)


def counts() -> tuple[int, int]:
    with operator_scope("test"):
        return Adapter.objects.count(), AdapterVersion.objects.count()


def test_a_folder_becomes_a_version_that_answers(folder: Path) -> None:
    # What Trainer leaves beside the two files is nobody's business.
    (folder / "training_args.bin").write_bytes(b"\x80\x04.")
    with validating():
        facts = run(*upload(folder, "--model", BASE, "--wait"))
    assert (facts["version"], facts["state"]) == ("acme/support@1", "ready")
    assert (facts["permille"], facts["rank"]) == (1000, 4)
    assert stored() == 1
    with operator_scope("test"):
        events = AuditEvent.objects.order_by("sequence")
        made = events.filter(record_id=facts["version_id"]).first()
    assert made is not None
    assert (made.verb, made.actor_kind, made.actor_id) == ("created", "command", "upload_adapter")


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_an_archive_is_taken_as_it_is_and_numbers_go_on(
    folder: Path, tmp_path: Path, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    archive = tmp_path / "adapter.archive"
    archive.write_bytes(pack(files()))
    with validating():
        run(*upload(folder, "--model", BASE, "--wait"))
        facts = run(*upload(archive, "--wait", name="acme/support"))
    assert (facts["version"], facts["state"], facts["permille"]) == ("acme/support@2", "ready", 0)


def test_without_waiting_it_says_what_is_on_record(folder: Path) -> None:
    facts = run(*upload(folder, "--model", BASE))
    assert (facts["version"], facts["state"]) == ("acme/support@1", "queued")


def test_a_refusal_is_told_in_one_line_and_fails(tmp_path: Path) -> None:
    (tmp_path / "adapter.zip").write_bytes(b"no archive at all")
    with validating():
        told = refused(*upload(tmp_path / "adapter.zip", "--model", BASE, "--wait"))
        out = io.StringIO()
        with pytest.raises(CommandError):
            call_command(*upload(tmp_path / "adapter.zip", "--wait", "--json"), stdout=out)
    assert "archive_kind" in told and "\n" not in told
    facts = json.loads(out.getvalue())
    assert (facts["state"], facts["refusal_code"]) == ("refused", "archive_kind")
    assert stored() == 0


def test_a_folder_that_peft_did_not_write_is_not_uploaded(tmp_path: Path) -> None:
    pickled = written(
        tmp_path / "pickled", {"adapter_config.json": b"{}", "adapter_model.bin": b"x"}
    )
    assert "adapter_model.safetensors" in refused(*upload(pickled, "--model", BASE))
    for path in (tmp_path / "nothing", tmp_path / "empty"):
        (tmp_path / "empty").touch()
        assert path.name in refused(*upload(path, "--model", BASE))
    assert (counts(), stored()) == ((0, 0), 0)


@pytest.mark.parametrize("name", ["../x", "a/b", "globex/support", "Support", "a@1", ""])
def test_what_is_no_name_leaves_nothing(folder: Path, name: str) -> None:
    refused(*upload(folder, "--model", BASE, name=name))
    assert (counts(), stored()) == ((0, 0), 0)


def test_the_model_is_said_once(folder: Path) -> None:
    assert "--model" in refused(*upload(folder))
    assert "'nothing'" in refused(*upload(folder, "--model", "nothing"))
    run(*upload(folder, "--model", BASE))
    assert BASE in refused(*upload(folder, "--model", "nothing"))
    assert counts() == (1, 1)


def test_the_tiers_bounds_hold_for_operators_too(folder: Path) -> None:
    with operator_scope("test"):
        Tier.objects.update(max_adapter_bytes=100)
    refused(*upload(folder, "--model", BASE))
    with operator_scope("test"):
        Tier.objects.update(max_adapter_bytes=10**6, max_adapters=0)
    assert "0 adapters" in refused(*upload(folder, "--model", BASE))
    assert (counts(), stored()) == ((0, 0), 0)
    with operator_scope("test"):
        assert not Upload.objects.filter(status__in=("pending", "completed")).exists()


def test_one_that_nobody_looks_at_is_told_when_the_time_is_over(folder: Path) -> None:
    told = refused(*upload(folder, "--model", BASE, "--wait", "--timeout", "0s"))
    assert "acme/support@1" in told and "pool-a" in told
    with operator_scope("test"):
        assert AdapterVersion.objects.get().state == "queued"


def test_a_closed_tenant_gets_none(acme: Project, folder: Path) -> None:
    with operator_scope("test"):
        close_tenant(acme.tenant)
    refused("upload_adapter", str(acme.tenant_id), "support", str(folder), "--model", BASE)
    assert (counts(), stored()) == ((0, 0), 0)
