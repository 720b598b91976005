"""API keys as pages: the list and its filters, a new one, a change, what nobody else may see."""

import logging
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session

from tenants.access.api_keys import issue_api_key
from tenants.access.projects import add_project
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, AuditEvent, Quota
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("functions_loaded")]
HTMX = {"HX-Request": "true"}
SECRET = re.compile(r"pk-[a-z0-9]{16}-[a-z2-7]{32}[0-9a-f]{6}")
NASTY = "<script>alert(1)</script>\"'><img src=x>"


def form(houses: TwoTenants, **changes: Any) -> dict[str, Any]:
    return {
        "project": str(houses.acme.project.id),
        "name": "ci",
        "scopes": ["inference"],
        "expires": "never",
        "models_of": "any",
    } | changes


def change(**changes: Any) -> dict[str, Any]:
    return {"name": "ci", "scopes": ["inference"], "expires": "never", "models_of": "any"} | changes


def issued(houses: TwoTenants, **fields: Any) -> ApiKey:
    with operator_scope("test"):
        return issue_api_key(houses.acme.project, **fields).record


def stored(key: ApiKey) -> ApiKey:
    with operator_scope("test"):
        return ApiKey.objects.get(id=key.id)


def names_of(answer: Any) -> list[str]:
    return [row.key.name for row in answer.context["page"].rows]


def secret_in(answer: Any) -> str:
    found = set(SECRET.findall(answer.content.decode()))
    assert len(found) == 1
    return str(found.pop())


def test_a_key_is_made_and_its_secret_shown_in_that_one_answer(
    signed_in: SignIn,
    houses: TwoTenants,
    acme_address: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    client = signed_in("developer")
    answer = client.post(f"{acme_address}keys/new", form(houses))
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    secret = secret_in(answer)
    with operator_scope("test"):
        key = ApiKey.objects.find(secret)
        assert key is not None and key.name == "ci"
        assert key.created_by == houses.acme.people["developer"]
        seal_now()
        event = AuditEvent.objects.filter(record_kind="tenants.ApiKey").latest("sequence")
        assert (event.verb, event.actor_id) == (
            "created",
            str(houses.acme.people["developer"].id),
        )
        assert secret[23:] not in str(vars(event)) + str(vars(event.personal))
    for page in ("keys", f"keys/{key.id}", f"keys/{key.id}/rotate", "keys/new", ""):
        assert secret[23:] not in client.get(f"{acme_address}{page}").content.decode()
    sessions = [str(session.get_decoded()) for session in Session.objects.all()]
    assert secret[23:] not in "".join(sessions) + caplog.text
    assert secret[23:] not in str(client.cookies)


def test_htmx_gets_the_secret_in_place_of_the_form(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    answer = signed_in("owner").post(f"{acme_address}keys/new", form(houses), headers=HTMX)
    assert answer.status_code == 200 and "<html" not in answer.content.decode()
    assert answer["Cache-Control"] == "no-store" and secret_in(answer)
    # What takes it out of a page that the browser keeps for going back.
    assert "data-secret" in answer.content.decode()


def test_a_key_is_made_with_a_budget_by_those_who_may_set_one(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    address, budget = f"{acme_address}keys/new", form(houses, budget="$50", name="bounded")
    assert "Monthly budget" in signed_in("admin").get(address).content.decode()
    assert signed_in("admin").post(address, budget).status_code == 200
    with operator_scope("test"):
        quota = Quota.objects.get(api_key__name="bounded")
    assert (quota.limit, quota.value, quota.is_hard) == ("spend_per_month", 50 * 10**9, True)
    assert "Monthly budget" not in signed_in("developer").get(address).content.decode()
    unbounded = budget | {"name": "unbounded"}
    assert signed_in("developer").post(address, unbounded).status_code == 200
    with operator_scope("test"):
        assert not Quota.objects.filter(api_key__name="unbounded").exists()


def test_a_form_that_is_posted_again_makes_no_second_key(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, address = signed_in("owner"), f"{acme_address}keys/new"
    shown = client.get(address).context["form"]["once"].value()
    first = client.post(address, form(houses, once=str(shown)))
    assert first.status_code == 200
    again = client.post(address, form(houses, once=str(shown)))
    assert again.status_code == 422 and again.context["form"].non_field_errors()
    assert SECRET.search(again.content.decode()) is None
    with operator_scope("test"):
        assert ApiKey.objects.filter(tenant=houses.acme.tenant).count() == 2
    # Of what another tenant has nothing is told by it.
    theirs = form(houses, once=str(houses.globex.key.id))
    assert client.post(address, theirs).status_code == 200


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"project": ""}, "project"),
        ({"project": "nothing"}, "project"),
        ({"name": "x" * 201}, "name"),
        ({"name": "a\x00b"}, "name"),
        ({"budget": "$0"}, "budget"),
        ({"budget": "much"}, "budget"),
        ({"budget": "$0.0000000001"}, "budget"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["inference", "everything"]}, "scopes"),
        ({"expires": "date"}, "expires_at"),
        ({"expires": "date", "expires_at": "2020-01-01T00:00"}, "expires_at"),
        ({"expires": "someday"}, "expires"),
        ({"models_of": "these"}, "allowed_models"),
        ({"models_of": "these", "allowed_models": [f"{CANARY}-model"]}, "allowed_models"),
        ({"allowed_networks": "10.0.0.0/8\nhome"}, "allowed_networks"),
        ({"allowed_networks": "10.0.0.1/8"}, "allowed_networks"),
        ({"allowed_adapters": "a" * 300}, "allowed_adapters"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_no_key_is_made(
    fields: dict[str, Any], wrong: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    answer = signed_in("owner").post(f"{acme_address}keys/new", form(houses, **fields))
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [wrong]
    assert SECRET.search(answer.content.decode()) is None
    with operator_scope("test"):
        assert ApiKey.objects.filter(tenant=houses.acme.tenant).count() == 1


def test_no_key_is_made_in_another_tenants_project(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, theirs = signed_in("owner"), houses.globex.project
    answer = client.post(f"{acme_address}keys/new", form(houses, project=str(theirs.id)))
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == ["project"]
    asked = client.get(f"{acme_address}keys/new", {"project": str(theirs.id)})
    assert CANARY not in asked.content.decode() and CANARY not in answer.content.decode()


def test_nobody_gives_a_key_more_than_their_role_may(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in("developer")
    offered = client.get(f"{acme_address}keys/new").context["form"]["scopes"]
    assert "admin" not in [str(option.data["value"]) for option in offered]
    answer = client.post(f"{acme_address}keys/new", form(houses, scopes=["admin"]))
    assert answer.status_code == 422 and list(answer.context["form"].errors) == ["scopes"]
    # One that is wider already is not theirs to change or to rotate.
    wide = issued(houses, name="wide", scopes=["admin"])
    answer = client.post(f"{acme_address}keys/{wide.id}", change(scopes=["admin"]))
    assert answer.status_code == 422 and list(answer.context["form"].errors) == ["scopes"]
    answer = client.post(f"{acme_address}keys/{wide.id}/rotate", {"overlap": "0"})
    assert answer.status_code == 422 and SECRET.search(answer.content.decode()) is None
    assert bytes(stored(wide).secret_digest) == bytes(wide.secret_digest)


def test_a_key_is_narrowed_and_what_was_left_alone_stays_to_the_microsecond(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    expiry = datetime.now(UTC).replace(microsecond=123) + timedelta(days=3)
    key = issued(houses, name="wide", scopes=["inference", "usage:read"], expires_at=expiry)
    client, address = signed_in("developer"), f"{acme_address}keys/{key.id}"
    narrowed = change(
        name="narrow",
        expires="date",
        expires_at=expiry.strftime("%Y-%m-%dT%H:%M:%S"),
        models_of="these",
        allowed_models=[houses.acme.model.name],
        allowed_networks="192.0.2.7\n2001:db8::/32",
        allowed_adapters="law\n",
    )
    assert client.post(address, narrowed).status_code == 302
    now = stored(key)
    assert (now.name, now.scopes, now.expires_at) == ("narrow", ["inference"], expiry)
    assert now.allowed_networks == ["192.0.2.7/32", "2001:db8::/32"]
    assert (now.allowed_models, now.allowed_adapters) == ([houses.acme.model.name], ["law"])
    # A scope that was taken away is not given back.
    answer = client.post(address, narrowed | {"scopes": ["inference", "usage:read"]})
    assert answer.status_code == 422 and list(answer.context["form"].errors) == ["scopes"]
    # Nor is the last model taken away by mistake, which would allow all.
    answer = client.post(address, narrowed | {"allowed_models": []})
    assert answer.status_code == 422 and stored(key).allowed_models == [houses.acme.model.name]


def test_what_people_typed_is_shown_as_text(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in("owner")
    with operator_scope("test"):
        add_project(houses.acme.tenant, name=NASTY)
    key = issued(houses, name=NASTY, allowed_adapters=[NASTY])
    one = f"keys/{key.id}"
    for page in ("keys", one, f"{one}/rotate", f"{one}/revoke", f"limits/new?key={key.id}"):
        html = client.get(f"{acme_address}{page}").content.decode()
        assert "<script>alert" not in html and "<img src=x" not in html, page
        assert "&lt;script&gt;" in html, page


@pytest.mark.parametrize("role", ["billing", "viewer"])
def test_who_may_not_manage_keys_sees_them_and_who_may(
    role: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, key = signed_in(role), houses.acme.key
    for page in ("keys", f"keys/{key.id}"):
        answer = client.get(f"{acme_address}{page}")
        assert answer.status_code == 200
        assert [str(role) for role in answer.context["writers"]] == ["owner", "admin", "developer"]
        html = answer.content.decode()
        assert key.masked in html and "keys/new" not in html and "/revoke" not in html
    for page in ("keys/new", f"keys/{key.id}/rotate", f"keys/{key.id}/revoke"):
        assert client.get(f"{acme_address}{page}").status_code == 403
        assert client.post(f"{acme_address}{page}", form(houses)).status_code == 403
    assert client.post(f"{acme_address}keys/{key.id}", change()).status_code == 403


def test_another_tenants_key_is_not_found(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, theirs = signed_in("owner"), houses.globex.key
    for page in ("", "/rotate", "/revoke"):
        address = f"{acme_address}keys/{theirs.id}{page}"
        assert client.get(address).status_code == 404
        sent = change() | {"overlap": "0", "confirm_name": theirs.name}
        assert client.post(address, sent).status_code == 404
    assert not stored(theirs).is_revoked


def test_the_list_is_narrowed_by_what_stands_in_the_address(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    me, now = houses.acme.members["developer"], datetime.now(UTC)
    with operator_scope("test"):
        web = add_project(houses.acme.tenant, name="web")
        issue_api_key(web, name="Web backend", by=me)
        issue_api_key(web, name="old").record.revoke()
        late = issue_api_key(web, name="late").record
        ApiKey.objects.filter(id=late.id).update(expires_at=now - timedelta(seconds=1))
    client, address = signed_in("developer"), f"{acme_address}keys"
    ours = houses.acme.key
    for query, names in (
        ({}, ["late", "Web backend", "acme key"]),
        ({"state": "any"}, ["late", "old", "Web backend", "acme key"]),
        ({"project": str(web.id)}, ["late", "Web backend"]),
        ({"state": "active"}, ["Web backend", "acme key"]),
        ({"state": "expired"}, ["late"]),
        ({"state": "revoked"}, ["old"]),
        ({"creator": str(me.user_id)}, ["Web backend"]),
        ({"q": "web"}, ["Web backend"]),
        ({"q": ours.masked}, ["acme key"]),
        ({"q": ours.public_id, "state": "revoked"}, []),
        ({"q": "100%_"}, []),
    ):
        assert names_of(client.get(address, query)) == names, query
    with operator_scope("test"):
        ApiKey.objects.update(revoked_at=now)
    assert "Every API key was revoked." in client.get(address).content.decode()
    fragment = client.get(address, {"q": "web"}, headers=HTMX).content.decode()
    assert fragment.lstrip().startswith('<div id="list"')


@pytest.mark.parametrize(
    "query",
    [{"state": "x"}, {"project": "x"}, {"creator": "x"}, {"q": "a\x00"}, {"cursor": "\x00"}],
)
def test_a_filter_that_is_none_narrows_nothing(
    query: dict[str, str], signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("viewer").get(f"{acme_address}keys", query)
    assert answer.status_code == 200 and names_of(answer) == ["acme key"]


def test_pages_of_a_narrowed_list_keep_its_filters(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        for number in range(30):
            issue_api_key(houses.acme.project, name=f"ci-{number}")
    client, address = signed_in("viewer"), f"{acme_address}keys"
    first = client.get(address, {"q": "ci-"})
    link = re.search(r'rel="next" href="([^"]+)"', first.content.decode())
    assert link is not None
    second = client.get(link[1].replace("&amp;", "&"))
    assert len(names_of(second)) == 5 and all(name.startswith("ci-") for name in names_of(second))


def test_who_made_a_key_is_told_to_those_who_may_know_people(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    issued(houses, name="theirs", by=houses.acme.members["admin"])
    email = houses.acme.people["admin"].email
    for role, knows in (("owner", True), ("developer", False), ("viewer", False)):
        client = signed_in(role)
        key_id = client.get(f"{acme_address}keys").context["page"].rows[0].key.id
        for page in ("keys", f"keys/{key_id}"):
            html = client.get(f"{acme_address}{page}").content.decode()
            assert (email in html) is knows, (role, page)
            assert knows or "a member" in html
    assert signed_in("admin").get(f"{acme_address}keys").context["page"].rows[0].creator == "you"


def test_a_suspended_tenants_keys_are_seen_and_none_is_made(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    client, key = signed_in("owner"), houses.acme.key
    for page in ("keys", f"keys/{key.id}"):
        assert client.get(f"{acme_address}{page}").status_code == 200
    for page in ("keys/new", f"keys/{key.id}", f"keys/{key.id}/rotate"):
        answer = client.post(f"{acme_address}{page}", form(houses, overlap="0"))
        assert answer.status_code == 403
        assert answer.context["refusal"].code == "tenant_suspended"
