"""Whoever stores a part, or waits for a digest, holds no connection to the database, of which a
process has ten."""

import pytest
from django.db import connection

from inference.blobs.opening import blob_store
from inference.blobs.store import BlobStore
from inference.uploads import digests, uploading
from tests.support.blobs.uploader import Uploader

pytestmark = pytest.mark.django_db(transaction=True)
PARTS = (b"one", b"two")


def test_no_connection_to_the_database_is_held_while_a_part_is_stored_or_a_digest_computed(
    alice: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "WAIT_SECONDS", 0.0)
    held: list[bool] = []

    def noting() -> BlobStore:
        held.append(connection.connection is not None)
        return blob_store()

    monkeypatch.setattr(uploading, "blob_store", noting)
    upload_id = alice.begin(sum(map(len, PARTS)))
    parts = [alice.part(upload_id, part) for part in PARTS]
    assert held == [False] * len(PARTS)

    monkeypatch.setattr(digests, "_send", lambda _: held.append(connection.connection is not None))
    alice.complete(upload_id, *parts, md5="0" * 32)
    assert held == [False] * (len(PARTS) + 1)
