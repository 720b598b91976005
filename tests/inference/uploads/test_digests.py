"""The MD5 of many parts: who serves others does not compute it, and waits for it only so long."""

import hashlib
from collections.abc import Iterable
from typing import Any

import pytest
from django.core.cache import cache

from inference.errors import Unavailable
from inference.tasks import compute_digest
from inference.uploads import digests
from inference.uploads.errors import DigestAway
from tests.support.blobs.uploader import Uploader, code_of
from tests.support.two_tenants import House

PARTS = (b"one", b"two", b"three", b"four")
DATA = b"".join(PARTS)
MD5 = hashlib.md5(DATA).hexdigest()  # noqa: S324


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """What Celery was asked to compute, and has not begun."""
    asked: list[list[Any]] = []
    monkeypatch.setattr(digests, "_send", asked.append)
    monkeypatch.setattr(digests, "WAIT_SECONDS", 0.0)
    return asked


def sent(uploader: Uploader) -> tuple[str, list[str]]:
    """A new upload with all its parts."""
    upload_id = uploader.begin(len(DATA))
    return upload_id, [uploader.part(upload_id, part) for part in PARTS]


def test_whoever_comes_too_soon_is_told_when_to_come_again(
    alice: Uploader, asked: list[list[Any]]
) -> None:
    upload_id, parts = sent(alice)
    for _ in range(2):
        answer = alice.complete(upload_id, *parts, md5=MD5)
        assert code_of(answer) == (503, "md5_pending")
        assert answer["Retry-After"] == "1"
    assert len(asked) == 1, "one computation for both"
    compute_digest(*asked[0])
    assert alice.complete(upload_id, *parts, md5=MD5).status_code == 200
    assert len(asked) == 1


def test_the_md5_of_one_part_is_known_already(alice: Uploader, asked: list[list[Any]]) -> None:
    upload_id = alice.begin(len(DATA))
    part = alice.part(upload_id, DATA)
    assert alice.complete(upload_id, part, md5=MD5).status_code == 200
    assert asked == []


def test_a_tenant_has_one_computed_at_a_time_and_keeps_nobody_else_from_it(
    alice: Uploader, bob: Uploader, asked: list[list[Any]]
) -> None:
    for uploader, computed in ((alice, 1), (alice, 1), (bob, 2)):
        upload_id, parts = sent(uploader)
        answer = uploader.complete(upload_id, *parts, md5=MD5)
        assert code_of(answer) == (503, "md5_pending")
        assert len(asked) == computed


def test_no_more_than_three_orders_are_tried(alice: Uploader, asked: list[list[Any]]) -> None:
    upload_id, parts = sent(alice)
    for number in range(digests.MOST_ORDERS):
        order = parts[number:] + parts[:number]
        assert code_of(alice.complete(upload_id, *order, md5="0" * 32)) == (503, "md5_pending")
        compute_digest(*asked.pop())
        assert code_of(alice.complete(upload_id, *order, md5="0" * 32)) == (400, "wrong_md5")
    answer = alice.complete(upload_id, *reversed(parts), md5="0" * 32)
    assert code_of(answer) == (400, "too_many_orders")
    assert asked == []
    assert alice.complete(upload_id, *parts, md5=MD5).status_code == 200, "it is known"


def test_one_that_failed_is_computed_anew_and_counts_for_nothing(
    alice: Uploader, asked: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: object) -> Iterable[bytes]:
        raise Unavailable("The store is away.")

    upload_id, parts = sent(alice)
    with monkeypatch.context() as patched:
        patched.setattr(digests, "read_parts", away)
        for _ in range(digests.MOST_ORDERS + 1):
            assert code_of(alice.complete(upload_id, *parts, md5=MD5)) == (503, "md5_pending")
            with pytest.raises(Unavailable):
                compute_digest(*asked.pop())
    alice.complete(upload_id, *parts, md5=MD5)
    compute_digest(*asked.pop())
    assert alice.complete(upload_id, *parts, md5=MD5).status_code == 200


def test_an_upload_that_has_ended_meanwhile_is_let_be(
    alice: Uploader, acme: House, asked: list[list[Any]]
) -> None:
    upload_id, parts = sent(alice)
    alice.complete(upload_id, *parts, md5=MD5)
    assert alice.cancel(upload_id).status_code == 200
    compute_digest(*asked.pop())
    assert cache.get(f"upload-digest:{acme.tenant.id}") is None


def test_without_anybody_to_ask_it_is_refused_for_now_and_completes_without(
    alice: Uploader, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_takes_it(_arguments: object) -> None:
        raise DigestAway

    monkeypatch.setattr(digests, "_send", nobody_takes_it)
    upload_id, parts = sent(alice)
    for _ in range(digests.MOST_ORDERS + 1):  # none of which counts
        answer = alice.complete(upload_id, *parts, md5=MD5)
        assert code_of(answer) == (503, "service_unavailable")
        assert "without md5" in answer.json()["error"]["message"]
    assert cache.get(f"upload-digest:{acme.tenant.id}") is None
    assert alice.complete(upload_id, *parts).status_code == 200
