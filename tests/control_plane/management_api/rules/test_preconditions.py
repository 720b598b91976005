"""ETag, If-Match and If-None-Match of single records."""

from collections.abc import Callable
from typing import Any

from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

AsRole = Callable[[str], ApiClient]


def records(acme: House) -> dict[str, dict[str, Any]]:
    """Every record that can be changed, and a change of it."""
    return {
        "": {"name": "Acme renamed"},
        f"projects/{acme.project.id}": {"name": "renamed"},
        f"keys/{acme.key.id}": {"name": "renamed"},
        f"members/{acme.members['viewer'].id}": {"role": "billing"},
        f"quotas/{acme.quota.id}": {"value": 77},
        "balance-alert": {"threshold_nanos": 7},
        f"webhooks/{acme.endpoint.id}": {"description": "renamed"},
        "sign-on": {
            "issuer": "https://93.184.216.34",
            "client_id": "penstock",
            "client_secret": "of acme",
        },
    }


def with_header(client: ApiClient, method: str, path: str, body: Any = None, **headers: str) -> Any:
    return client.send(method, path, body, headers=headers)


def test_every_record_has_an_etag_that_changes_with_it(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    for path, change in records(acme).items():
        first = owner.get(path)["ETag"]
        assert first.startswith('"') and owner.get(path)["ETag"] == first, path
        changed = with_header(owner, "PATCH", path, change, if_match=first)
        assert changed.status_code == 200, (path, changed.content)
        assert owner.get(path)["ETag"] == changed["ETag"] != first, path


def test_a_change_of_what_was_changed_meanwhile_is_refused(as_role: AsRole, acme: House) -> None:
    owner = as_role("owner")
    for path, change in records(acme).items():
        before = owner.get(path)
        for stale in ('"0123"', "unquoted", f"W/{before['ETag']}", ""):
            refused = with_header(owner, "PATCH", path, change, if_match=stale)
            assert refused.status_code == 412, (path, stale)
            assert refused.json()["error"]["code"] == "precondition_failed"
        assert owner.get(path).json() == before.json(), path


def test_what_is_wrong_with_a_change_is_told_before_what_was_changed_meanwhile(
    as_role: AsRole, acme: House
) -> None:
    owner = as_role("owner")
    for path in records(acme):
        for body in (b"{", {"unknown": 1}):
            refused = with_header(owner, "PATCH", path, body, if_match='"0123"')
            assert refused.status_code == 400, (path, body)
    for path in ("", "balance-alert"):
        assert with_header(owner, "PATCH", path, {}, if_match='"0123"').status_code == 400


def test_any_record_will_do_for_a_star_and_without_the_header(as_role: AsRole, acme: House) -> None:
    owner, path = as_role("owner"), f"projects/{acme.project.id}"
    assert with_header(owner, "PATCH", path, {"name": "a"}, if_match="*").status_code == 200
    assert owner.patch(path, {"name": "b"}).status_code == 200
    listed = f'"0123", {owner.get(path)["ETag"]}'
    assert with_header(owner, "PATCH", path, {"name": "c"}, if_match=listed).status_code == 200
    refused = with_header(owner, "PATCH", path, {"name": "d"}, if_none_match="*")
    assert refused.status_code == 412


def test_a_reader_who_has_it_is_told_no_more(as_role: AsRole, acme: House) -> None:
    owner, path = as_role("owner"), f"keys/{acme.key.id}"
    etag = owner.get(path)["ETag"]
    for known in (etag, f"W/{etag}", f'"0123", {etag}', "*"):
        answer = with_header(owner, "GET", path, if_none_match=known)
        assert (answer.status_code, answer.content, answer["ETag"]) == (304, b"", etag)
        assert answer["Cache-Control"] == "no-store"
    owner.patch(path, {"name": "renamed"})
    assert with_header(owner, "GET", path, if_none_match=etag).status_code == 200


def test_who_may_see_other_things_has_another_etag(as_role: AsRole) -> None:
    assert as_role("owner").get("")["ETag"] != as_role("viewer").get("")["ETag"]


def test_what_is_not_there_is_404_whatever_the_header_says(as_role: AsRole, globex: House) -> None:
    path = f"projects/{globex.project.id}"
    refused = with_header(as_role("owner"), "PATCH", path, {"name": "x"}, if_match="*")
    assert refused.status_code == 404


def test_a_delete_can_be_conditional_too(as_role: AsRole, acme: House) -> None:
    owner, path = as_role("owner"), f"quotas/{acme.quota.id}"
    assert with_header(owner, "DELETE", path, if_match='"0123"').status_code == 412
    assert with_header(owner, "DELETE", path, if_match=owner.get(path)["ETag"]).status_code == 204
