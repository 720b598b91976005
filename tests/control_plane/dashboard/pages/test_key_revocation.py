"""Rotation and revocation of API keys as pages."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import TwoTenants

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("functions_loaded")]
SECRET = re.compile(r"pk-[a-z0-9]{16}-[a-z2-7]{32}[0-9a-f]{6}")
HTMX = {"HX-Request": "true"}


def stored(key: ApiKey) -> ApiKey:
    with operator_scope("test"):
        return ApiKey.objects.get(id=key.id)


def secrets_in(answer: Any) -> set[str]:
    return set(SECRET.findall(answer.content.decode()))


@pytest.mark.parametrize(("overlap", "still_works"), [("0", False), ("86400", True)])
def test_rotation_shows_the_new_secret_once_and_the_old_one_works_for_the_overlap(
    overlap: str,
    still_works: bool,
    signed_in: SignIn,
    houses: TwoTenants,
    acme_address: str,
) -> None:
    with operator_scope("test"):
        before = issue_api_key(houses.acme.project, name="ci")
    client = signed_in("developer")
    address = f"{acme_address}keys/{before.record.id}/rotate"
    assert secrets_in(client.get(address)) == set()
    answer = client.post(address, {"overlap": overlap})
    assert answer.status_code == 200 and answer["Cache-Control"] == "no-store"
    (secret,) = secrets_in(answer)
    key = stored(before.record)
    assert key.is_genuine(secret) and key.is_genuine(before.key) is still_works
    assert key.previous_expires_at == key.rotated_at + timedelta(seconds=int(overlap))  # type: ignore[operator]
    for page in (address, f"{acme_address}keys/{key.id}", f"{acme_address}keys"):
        assert secrets_in(client.get(page)) == set()


def test_the_list_says_until_when_both_secrets_of_a_rotation_work(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, key = signed_in("owner"), houses.acme.key
    assert "both secrets work" not in client.get(f"{acme_address}keys").content.decode()
    client.post(f"{acme_address}keys/{key.id}/rotate", {"overlap": "86400"})
    until = stored(key).previous_expires_at
    assert until is not None
    page = client.get(f"{acme_address}keys").content.decode()
    told = page.partition("both secrets work until ")[2].partition("</span>")[0]
    assert f'datetime="{until.isoformat(timespec="seconds")}"' in told


def test_a_rotation_that_is_posted_again_does_not_push_out_the_new_secret(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, address = signed_in("owner"), f"{acme_address}keys/{houses.acme.key.id}/rotate"
    sent = {"overlap": "0", "seen": client.get(address).context["form"]["seen"].value()}
    (secret,) = secrets_in(client.post(address, sent))
    again = client.post(address, sent)
    assert again.status_code == 422 and secrets_in(again) == set()
    assert stored(houses.acme.key).is_genuine(secret)


@pytest.mark.parametrize("overlap", ["", "-1", "2592001", "1", "x"])
def test_another_overlap_than_those_offered_is_refused(
    overlap: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    key = houses.acme.key
    answer = signed_in("owner").post(
        f"{acme_address}keys/{key.id}/rotate", {"overlap": overlap}, headers=HTMX
    )
    assert answer.status_code == 422 and list(answer.context["form"].errors) == ["overlap"]
    assert bytes(stored(key).secret_digest) == bytes(key.secret_digest)


@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_a_key_that_works_no_longer_is_not_rotated(
    end: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    key = houses.acme.key
    with operator_scope("test"):
        if end == "revoked":
            key.revoke()
        ApiKey.objects.filter(id=key.id).update(expires_at=timezone.now() - timedelta(seconds=1))
    client, address = signed_in("owner"), f"{acme_address}keys/{key.id}/rotate"
    assert '<form class="form' not in client.get(address).content.decode()
    answer = client.post(address, {"overlap": "0"})
    assert answer.status_code == 422 and secrets_in(answer) == set()


def test_revocation_asks_for_the_name_first(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, key = signed_in("developer"), houses.acme.key
    address = f"{acme_address}keys/{key.id}/revoke"
    assert key.masked in client.get(address).content.decode()
    for typed in ("", "acme", "ACME KEY"):
        answer = client.post(address, {"confirm_name": typed})
        assert answer.status_code == 422
        assert list(answer.context["form"].errors) == ["confirm_name"]
    assert not stored(key).is_revoked
    answer = client.post(address, {"confirm_name": "acme key"})
    assert (answer.status_code, answer["Location"]) == (302, f"{acme_address}keys/{key.id}")
    assert stored(key).is_revoked
    first = stored(key).revoked_at
    assert client.post(address, {"confirm_name": "acme key"}).status_code == 302
    assert stored(key).revoked_at == first


def test_a_key_without_a_name_is_named_by_what_everybody_sees_of_it(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        key = issue_api_key(houses.acme.project).record
    address = f"{acme_address}keys/{key.id}/revoke"
    assert signed_in("owner").post(address, {"confirm_name": key.public_id}).status_code == 302
    assert stored(key).is_revoked


def test_a_leaked_key_is_revoked_while_the_tenant_is_suspended_too(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    client, key = signed_in("owner"), houses.acme.key
    assert f"keys/{key.id}/revoke" in client.get(f"{acme_address}keys/{key.id}").content.decode()
    answer = client.post(f"{acme_address}keys/{key.id}/revoke", {"confirm_name": "acme key"})
    assert answer.status_code == 302 and stored(key).is_revoked
