"""A person's own sessions."""

from collections.abc import Callable
from typing import Any

from django.test import Client

from tests.support.api_client import ApiClient
from tests.support.two_tenants import PASSWORD, House

AsRole = Callable[[str], ApiClient]
SESSIONS = "/api/v1/me/sessions"


def signed_in(acme: House, role: str = "owner", browser: str = "Firefox") -> Client:
    client = Client(headers={"user-agent": browser})
    credentials = {"email": acme.people[role].email, "password": PASSWORD}
    assert client.post("/api/v1/session", credentials, "application/json").status_code == 200
    return client


def listed(client: Client, **query: Any) -> list[Any]:
    rows: list[Any] = client.get(SESSIONS, query).json()["data"]
    return rows


def is_signed_in(client: Client) -> bool:
    return client.get("/api/v1/session").json()["user"] is not None


def test_a_person_sees_their_sessions_and_which_is_this_one(acme: House) -> None:
    phone, laptop = signed_in(acme, browser="Phone"), signed_in(acme, browser="Laptop")
    signed_in(acme, "admin")
    rows = listed(laptop)
    assert [(row["user_agent"], row["is_current"]) for row in rows] == [
        ("Laptop", True),
        ("Phone", False),
    ]
    assert {row["address"] for row in rows} == {"127.0.0.1"}
    assert phone.cookies["penstock_session"].value not in laptop.get(SESSIONS).content.decode()
    assert [row["user_agent"] for row in listed(laptop, search="phon")] == ["Phone"]
    assert laptop.get(SESSIONS, {"user": "x"}).json()["error"]["param"] == "user"


def test_long_lists_come_in_pages(acme: House) -> None:
    clients = [signed_in(acme, browser=f"Browser {number}") for number in range(3)]
    first = clients[0].get(SESSIONS, {"limit": 2}).json()
    rest = clients[0].get(SESSIONS, {"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [row["user_agent"] for row in first["data"] + rest["data"]] == [
        "Browser 2",
        "Browser 1",
        "Browser 0",
    ]


def test_one_session_is_ended_and_no_other(acme: House) -> None:
    phone, laptop, tablet = (signed_in(acme) for _ in range(3))
    (session,) = [row for row in listed(phone) if row["is_current"]]
    assert laptop.delete(f"{SESSIONS}/{session['id']}").status_code == 204
    assert [is_signed_in(client) for client in (phone, laptop, tablet)] == [False, True, True]
    assert laptop.delete(f"{SESSIONS}/{session['id']}").status_code == 404


def test_the_session_that_asks_can_be_ended(acme: House) -> None:
    laptop = signed_in(acme)
    (session,) = listed(laptop)
    assert laptop.delete(f"{SESSIONS}/{session['id']}").status_code == 204
    assert not is_signed_in(laptop)


def test_all_others_are_ended(acme: House) -> None:
    phone, laptop = signed_in(acme), signed_in(acme)
    stranger = signed_in(acme, "admin")
    assert laptop.delete(SESSIONS).status_code == 204
    assert [is_signed_in(client) for client in (phone, laptop, stranger)] == [False, True, True]
    assert len(listed(laptop)) == 1


def test_nobody_ends_sessions_of_somebody_else(acme: House) -> None:
    owner, admin = signed_in(acme), signed_in(acme, "admin")
    (session,) = listed(owner)
    assert admin.delete(f"{SESSIONS}/{session['id']}").status_code == 404
    assert admin.delete(f"{SESSIONS}/{2**70}").status_code == 404
    assert is_signed_in(owner)


def test_a_session_ends_only_with_its_csrf_token(acme: House) -> None:
    owner = signed_in(acme)
    strict = Client(enforce_csrf_checks=True)
    strict.cookies.load({name: each.value for name, each in owner.cookies.items()})
    refused = strict.delete(SESSIONS)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "csrf_failed")
