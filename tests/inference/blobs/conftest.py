"""The two kinds of store: a folder, and S3 as moto's server answers for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.blobs.opening import open_store
from inference.blobs.store import BlobStore
from tests.support.blobs.s3_server import CREDENTIALS, S3Server, s3_server

PUBLIC_URL = "https://penstock.example"
SECRETS = ("a secret of these tests", "the secret before it")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def folder_store(folder: Path) -> BlobStore:
    return open_store(f"file:{folder}", base=Path("/"), public_url=PUBLIC_URL, secrets=SECRETS)


@pytest.fixture
def s3_store(s3: S3Server) -> BlobStore:
    store = open_store(
        s3.url, base=Path("/"), public_url=PUBLIC_URL, secrets=SECRETS, **CREDENTIALS
    )
    store.delete(*[blob.path for blob in store.list()])
    return store
