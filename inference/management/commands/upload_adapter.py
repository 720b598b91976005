"""manage.py upload_adapter Acme support ./peft-output --model org/model --wait"""

import time
import uuid
import zipfile
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

from django.core.management.base import CommandError, CommandParser

from inference.adapters.intake import add_uploaded_version
from inference.adapters.lifecycle import add_adapter
from inference.adapters.validation.verdicts import Bounds
from inference.errors import InferenceError
from inference.models import Adapter, AdapterVersion, Upload
from inference.models.adapter import AdapterState
from inference.models.upload import MAX_FILENAME_CHARACTERS, UploadPurpose
from inference.uploads.bounds import upload_bytes_allowed
from inference.uploads.files import discard_file
from inference.uploads.uploading import NewUpload, create_upload
from inference.uploads.whole import store_whole
from tenants.errors import TenantsError
from tenants.isolation.scoping import operator_scope
from tenants.management.arguments import duration
from tenants.management.look_up import tenant_named
from tenants.management.reporting import Fact, ReportingCommand
from tenants.models import Tenant

_REASON: Final = "command upload_adapter"
# What PEFT's save_pretrained writes of an adapter. What others leave beside them stays there.
_FILES: Final = ("adapter_config.json", "adapter_model.safetensors")
_POLL_SECONDS: Final = 0.2


class Command(ReportingCommand):
    # Storing a file takes long, and no transaction is open meanwhile.
    is_one_transaction = False
    help = (
        "Upload what PEFT's save_pretrained wrote as the next version of an adapter, and have it "
        "validated. The first version that is ready takes the adapter's traffic."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("name")
        parser.add_argument("path", type=Path)
        parser.add_argument("--model", help="the served model; needed for a new adapter")
        parser.add_argument("--wait", action="store_true", help="until it is ready or refused")
        parser.add_argument(
            "--timeout", type=duration, default=timedelta(minutes=5), help="of --wait (default: 5m)"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            version = self._upload(options)
        except (TenantsError, InferenceError) as error:
            raise CommandError(error.message) from error
        if options["wait"]:
            version = _looked_at(version.pk, options["timeout"].total_seconds())
        is_refused = version.state == AdapterState.REFUSED
        if options["json"] or not is_refused:
            self.report(options, **_facts(version))
        if is_refused:
            why = " ".join(version.refusal.split())
            raise CommandError(f"{version} was refused ({version.refusal_code}): {why}")

    def _upload(self, options: dict[str, Any]) -> AdapterVersion:
        path: Path = options["path"]
        with operator_scope(_REASON):
            tenant = tenant_named(options["tenant"])
            if tenant.is_closed:
                raise CommandError(f"Tenant {tenant.id} is closed.")
            slug = options["name"].removeprefix(f"{tenant.slug}/")
            _check_model(tenant, slug, options["model"])
            allowed = min(upload_bytes_allowed(tenant), Bounds().archive_bytes)
        with _opened(path, allowed) as file:
            upload = _begun(tenant, path, file)
            store_whole(tenant, upload, file)
        try:
            with operator_scope(_REASON):
                adapter = _adapter(tenant, slug) or add_adapter(
                    tenant, slug=slug, model=options["model"] or ""
                )
                return add_uploaded_version(adapter, upload.file_id)
        except BaseException:
            with operator_scope(_REASON):
                discard_file(tenant, upload.id)
            raise


def _adapter(tenant: Tenant, slug: str) -> Adapter | None:
    rows = Adapter.objects.select_related("tenant__tier")
    return rows.filter(tenant=tenant, slug=slug, archived_at=None).first()


def _check_model(tenant: Tenant, slug: str, model: str | None) -> None:
    """Refuse what would only be refused once the file is stored."""
    adapter = _adapter(tenant, slug)
    if adapter is None and model is None:
        raise CommandError(
            f"{tenant.slug}/{slug} does not exist yet; say with --model which served model it "
            "changes."
        )
    if adapter is not None and model not in (None, adapter.model_id):
        raise CommandError(f"{adapter.name} changes {adapter.model_id}, not {model}.")


def _opened(path: Path, allowed: int) -> IO[bytes]:
    """Return what is uploaded, open: a file as it is, a folder's two files as a zip."""
    try:
        if path.is_dir():
            return _packed(path, allowed)
        if path.is_file():
            return path.open("rb")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    raise CommandError(f"{path} is neither a folder nor a file.")


def _packed(folder: Path, allowed: int) -> IO[bytes]:
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        raise CommandError(
            f"{folder} has no {missing[0]}; expected is the folder that PEFT's save_pretrained "
            f"wrote, with {' and '.join(_FILES)}."
        )
    size = sum((folder / name).stat().st_size for name in _FILES)
    if size > allowed:
        raise CommandError(
            f"{folder} has {size} bytes, and an adapter's upload may have {allowed} at most; train "
            "with a lower rank or for fewer modules."
        )
    file = TemporaryFile(prefix="penstock-adapter-")  # noqa: SIM115 - the caller's
    # Weights hardly get smaller.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in _FILES:
            with (folder / name).open("rb") as source, archive.open(name, "w") as target:
                while chunk := source.read(1024 * 1024):
                    target.write(chunk)
    file.seek(0)
    return file


def _begun(tenant: Tenant, path: Path, file: IO[bytes]) -> Upload:
    size = file.seek(0, 2)
    file.seek(0)
    if not size:
        raise CommandError(f"{path} is empty.")
    with operator_scope(_REASON):
        name = "".join(filter(str.isprintable, path.resolve().name))
        new = NewUpload(
            filename=name[:MAX_FILENAME_CHARACTERS] or "adapter",
            mime_type="application/octet-stream",
            purpose=UploadPurpose.ADAPTER,
            size_bytes=size,
        )
        return create_upload(tenant, new)


def _looked_at(version_id: uuid.UUID, timeout_seconds: float) -> AdapterVersion:
    """Return the version once it was validated."""
    until = time.monotonic() + timeout_seconds
    while True:
        with operator_scope(_REASON):
            rows = AdapterVersion.objects.select_related("adapter__tenant", "adapter__model")
            version = rows.get(pk=version_id)
        if not version.is_in_progress:
            return version
        if time.monotonic() >= until:
            raise CommandError(
                f"{version} is {version.state} after {timeout_seconds:g} s and goes on; see that "
                f"the Celery worker of the queue adapters and a worker of the pool "
                f"{version.adapter.model.pool_id} run. `adapters show {version.adapter.name}` says "
                "how it ends."
            )
        time.sleep(_POLL_SECONDS)


def _facts(version: AdapterVersion) -> dict[str, Fact]:
    return {
        "version": str(version),
        "version_id": str(version.id),
        "state": str(version.state),
        "permille": version.adapter.permille_of(version.number),
        "rank": version.rank,
        "stored_bytes": version.stored_bytes,
        "warnings": " ".join(version.warnings) or None,
        "refusal_code": version.refusal_code or None,
        "refusal": version.refusal or None,
    }
