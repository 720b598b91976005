"""Opens the store that `PENSTOCK_BLOB_STORE_URL` names.

file:/folder                       a folder of this machine, or one that all processes share
s3://bucket/prefix                 S3; region, endpoint and credentials by the usual AWS_ variables
s3://bucket?endpoint=URL&region=R  the same, for a store of one's own

Put each process's store to use after the process has forked: its runtime has threads.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import obstore
from django.conf import settings
from obstore.store import LocalStore, S3Store

from inference.blobs.addresses import FolderSigner
from inference.blobs.durable import write_through
from inference.blobs.store import BlobStore

_CLIENT: Final[Any] = {
    "connect_timeout": timedelta(seconds=5),
    "timeout": timedelta(seconds=120),
    "read_timeout": timedelta(seconds=15),
}
_RETRIES: Final[Any] = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}


def blob_store() -> BlobStore:
    """Return the deployment's store, one for each process."""
    return _opened(
        settings.PENSTOCK_BLOB_STORE_URL,
        settings.BASE_DIR,
        settings.PENSTOCK_PUBLIC_URL,
        (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS),
    )


def blob_folder() -> Path | None:
    """Return the folder that the store is, or None for S3."""
    return _folder_of(settings.PENSTOCK_BLOB_STORE_URL, settings.BASE_DIR)


def folder_signer() -> FolderSigner:
    secrets = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return FolderSigner(settings.PENSTOCK_PUBLIC_URL, secrets)


def open_store(
    url: str, *, base: Path, public_url: str, secrets: Sequence[str], **options: Any
) -> BlobStore:
    """Open the store at an address. A folder's path is relative to `base`; it is made if it is
    missing, for its owner alone. `options` are S3's, see obstore's `S3Config`."""
    folder = _folder_of(url, base)
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return BlobStore(
            LocalStore(folder, automatic_cleanup=True),
            sign=FolderSigner(public_url, secrets),
            settle=partial(write_through, folder),
        )
    parts = urlsplit(url)
    given: dict[str, Any] = dict(parse_qsl(parts.query)) | options
    client = _CLIENT | {"allow_http": str(given.get("endpoint", "")).startswith("http://")}
    store = S3Store(parts.hostname or "", client_options=client, retry_config=_RETRIES, **given)

    def sign(path: str, seconds: int) -> str:
        return obstore.sign(store, "GET", path, timedelta(seconds=seconds))

    return BlobStore(store, prefix=parts.path.strip("/"), sign=sign)


@lru_cache(maxsize=8)
def _opened(url: str, base: Path, public_url: str, secrets: tuple[str, ...]) -> BlobStore:
    return open_store(url, base=base, public_url=public_url, secrets=secrets)


def _folder_of(url: str, base: Path) -> Path | None:
    parts = urlsplit(url)
    return base / parts.path if parts.scheme == "file" else None
