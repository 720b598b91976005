"""The playground's page and its tickets: for whom, of what, and what they never hold."""

import logging
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from control_plane.dashboard.pages.playground import page
from django.test import Client
from redis import Redis

from gpu_workers.protocol import codec
from inference.admission.tickets import TICKET_SECONDS, ticket_key
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Tier
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("functions_loaded")]


def asked(client: Client, address: str, project: object) -> Any:
    return client.post(f"{address}playground/tickets", {"project": str(project)})


def session_of(client: Client) -> str:
    return str(client.session.session_key)


@pytest.fixture
def keys_of_playgrounds(houses: TwoTenants) -> Iterator[Any]:
    def found() -> list[ApiKey]:
        with operator_scope("test"):
            return list(ApiKey.objects.filter(is_playground=True).select_related("created_by"))

    yield found


def test_the_page_offers_the_tenants_models_and_adapters_with_their_prices(
    signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("developer").get(f"{acme_address}playground")
    html = answer.content.decode()
    names = [offer.name for offer in answer.context["offers"]]
    assert "public-model" in names and any("/" in name for name in names)
    assert CANARY not in html
    assert re.search(r'data-prompt="\d+" data-cached="\d+" data-completion="\d+"', html)


def test_a_ticket_stands_for_the_member_in_the_project_and_is_bound_to_the_session(
    signed_in: SignIn,
    houses: TwoTenants,
    acme_address: str,
    dispatch_redis_url: str,
    keys_of_playgrounds: Any,
) -> None:
    client = signed_in("developer")
    answer = asked(client, acme_address, houses.acme.project.id)
    assert answer.status_code == 200 and answer["Cache-Control"] == "no-store"
    told = answer.json()
    assert told["expires_in"] == TICKET_SECONDS
    [key] = keys_of_playgrounds()
    assert key.created_by == houses.acme.people["developer"]
    with Redis.from_url(dispatch_redis_url) as redis:
        name = ticket_key(told["ticket"], session=session_of(client))
        caller = codec.decode_caller(cast(bytes, redis.get(name)))
        assert 0 < cast(int, redis.ttl(name)) <= TICKET_SECONDS
        assert redis.get(ticket_key(told["ticket"])) is None
    assert caller.public_key_id == key.public_id and caller.proofs == []
    assert caller.key.project_id == str(houses.acme.project.id)
    # The same key stands behind the next.
    asked(client, acme_address, houses.acme.project.id)
    assert len(keys_of_playgrounds()) == 1


def test_a_ticket_stands_in_no_log(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = signed_in("developer")
    ticket = asked(client, acme_address, houses.acme.project.id).json()["ticket"]
    assert ticket not in caplog.text and session_of(client) not in caplog.text


def test_whoever_may_make_no_keys_gets_none(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, keys_of_playgrounds: Any
) -> None:
    for role in ("viewer", "billing"):
        answer = asked(signed_in(role), acme_address, houses.acme.project.id)
        assert (answer.status_code, answer.json()["code"]) == (403, "missing_role")
    assert keys_of_playgrounds() == []


def test_a_suspended_organisation_gets_none_and_the_page_says_so(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, keys_of_playgrounds: Any
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    client = signed_in("owner")
    answer = asked(client, acme_address, houses.acme.project.id)
    assert (answer.status_code, answer.json()["code"]) == (403, "tenant_suspended")
    assert "while the organisation is suspended" in (
        client.get(f"{acme_address}playground").content.decode()
    )
    assert keys_of_playgrounds() == []


def test_another_tenants_project_is_none(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, keys_of_playgrounds: Any
) -> None:
    client = signed_in("owner")
    for project in (houses.globex.project.id, houses.acme.tenant.id, "nothing", ""):
        assert asked(client, acme_address, project).status_code == 404
    theirs = asked(client, f"/t/{houses.globex.tenant.id}/", houses.globex.project.id)
    assert theirs.status_code == 404
    assert keys_of_playgrounds() == []


def test_a_ticket_takes_the_forms_token(houses: TwoTenants, acme_address: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(houses.acme.people["owner"])
    assert asked(client, acme_address, houses.acme.project.id).status_code == 403


def test_while_redis_is_away_the_page_is_told(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Redis(host="127.0.0.1", port=1)
    monkeypatch.setattr(page, "policy_redis", lambda: away)
    answer = asked(signed_in("owner"), acme_address, houses.acme.project.id)
    assert answer.status_code == 503 and "try again" in answer.json()["message"]


def test_the_key_is_listed_marked_and_can_only_be_revoked(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, keys_of_playgrounds: Any
) -> None:
    asked(signed_in("developer"), acme_address, houses.acme.project.id)
    [key] = keys_of_playgrounds()
    client = signed_in("owner")
    assert key.public_id in client.get(f"{acme_address}keys").content.decode()
    html = client.get(f"{acme_address}keys/{key.id}").content.decode()
    assert "playground" in html and "Rotate" not in html and "Save changes" not in html
    rotated = client.post(f"{acme_address}keys/{key.id}/rotate", {"overlap": "0"})
    assert rotated.status_code == 422
    answer = client.post(f"{acme_address}keys/{key.id}/revoke", {"confirm_name": "Playground"})
    assert answer.status_code == 302
    assert keys_of_playgrounds()[0].is_revoked


def test_a_tenant_with_as_many_keys_as_it_may_have_gets_no_ticket_and_is_told_why(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, keys_of_playgrounds: Any
) -> None:
    with operator_scope("test"):
        Tier.objects.update(max_api_keys=1)
    answer = asked(signed_in("developer"), acme_address, houses.acme.project.id)
    assert (answer.status_code, answer.json()["code"]) == (403, "too_many_api_keys")
    assert "Tier premium allows 1 API keys" in answer.json()["message"]
    assert keys_of_playgrounds() == []
