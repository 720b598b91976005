"""Signing in and out by the API."""

import pytest
from django.test import Client

from tests.support.two_tenants import PASSWORD, House

SESSION = "/api/v1/session"
EMAIL = "owner@acme.example"


class Browser:
    """Keeps cookies, and sends the CSRF token that it was told."""

    def __init__(self, address: str = "192.0.2.1") -> None:
        self.http = Client(enforce_csrf_checks=True, REMOTE_ADDR=address)

    def sign_in(self, email: str, password: str, **headers: str) -> object:
        token = self.http.get(SESSION).json()["csrf_token"]
        return self.http.post(
            SESSION,
            {"email": email, "password": password},
            content_type="application/json",
            headers={"x-csrftoken": token, **headers},
        )


@pytest.fixture
def browser() -> Browser:
    return Browser()


@pytest.mark.usefixtures("acme")
def test_a_person_signs_in_and_out(browser: Browser) -> None:
    assert browser.http.get(SESSION).json()["user"] is None
    answer = browser.sign_in("Owner@Acme.example", PASSWORD)
    assert answer.status_code == 200  # type: ignore[attr-defined]
    session = browser.http.get(SESSION).json()
    assert session["user"] == {"email": EMAIL, "name": "acme owner"}
    assert browser.http.get("/api/v1/me").status_code == 200
    gone = browser.http.delete(SESSION, headers={"x-csrftoken": session["csrf_token"]})
    assert gone.status_code == 204
    assert browser.http.get("/api/v1/me").status_code == 401


def test_another_site_can_sign_nobody_in(acme: House) -> None:
    answer = Client(enforce_csrf_checks=True).post(
        SESSION, {"email": EMAIL, "password": PASSWORD}, content_type="application/json"
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "csrf_failed")


def test_wrong_password_unknown_address_and_closed_account_are_told_the_same(
    acme: House, browser: Browser
) -> None:
    user = acme.people["viewer"]
    user.is_active = False
    user.save()
    answers = [
        browser.sign_in(email, password)
        for email, password in (
            (EMAIL, "wrong"),
            ("nobody@nowhere.example", PASSWORD),
            (user.email, PASSWORD),
        )
    ]
    assert {answer.status_code for answer in answers} == {401}  # type: ignore[attr-defined]
    assert len({answer.content for answer in answers}) == 1  # type: ignore[attr-defined]


@pytest.mark.usefixtures("one_window")
def test_guessing_a_password_is_stopped_in_any_case_and_from_any_address(acme: House) -> None:
    answers = [
        Browser(f"192.0.2.{number}").sign_in(EMAIL if number % 2 else EMAIL.upper(), "wrong")
        for number in range(31)
    ]
    assert [answer.status_code for answer in answers] == [401] * 30 + [429]  # type: ignore[attr-defined]
    assert answers[30]["Retry-After"] == "60"  # type: ignore[index]


@pytest.mark.usefixtures("one_window")
def test_the_operators_page_counts_the_same_attempts(acme: House, browser: Browser) -> None:
    for _ in range(10):
        browser.sign_in(EMAIL, "wrong")
    here = Client(REMOTE_ADDR="192.0.2.1")
    answer = here.post("/admin/login/", {"username": EMAIL, "password": "wrong"})
    assert answer.status_code == 429


def test_a_session_that_cannot_be_one_is_none(db: None) -> None:
    http = Client()
    for text in ('"\\000\\001aaaaaaaaaaaa"', "x" * 5000, '"\\377\\376"'):
        http.cookies.load({"penstock_session": text})
        http.cookies["penstock_session"].set("penstock_session", text, text)
        assert http.get("/api/v1/me").status_code == 401
