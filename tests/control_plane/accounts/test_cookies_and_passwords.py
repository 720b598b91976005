"""What cookies allow, what answers tell browsers, and which passwords are taken and how."""

import control_plane.settings
import pytest
from django.conf import global_settings
from django.contrib.auth.hashers import identify_hasher
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from pytest_django.fixtures import Settings

from tenants.models import User
from tests.support.accounts.browser import Browser
from tests.support.two_tenants import House

EMAIL = "owner@acme.example"
CHANGE = "/account/password/change/"


def test_a_session_is_for_the_browser_and_this_site_alone(alice: Browser) -> None:
    session = alice.http.cookies["penstock_session"]
    assert session["httponly"] and session["samesite"] == "Lax"
    assert session["domain"] == ""
    assert len(set(session.value)) > 8 and len(session.value) >= 32
    assert alice.http.cookies["penstock_csrf"]["samesite"] == "Lax"


@pytest.mark.parametrize("path", ["/", "/account/", "/account/login/", "/admin/login/", "/none"])
def test_a_page_tells_browsers_to_guess_nothing_and_tell_nobody(alice: Browser, path: str) -> None:
    answer = alice.get(path)
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Referrer-Policy"] == "same-origin"
    assert answer["X-Frame-Options"] == "DENY"
    assert "Access-Control-Allow-Origin" not in answer


@pytest.mark.parametrize(
    "password",
    ["correct horse", "ONLYCAPITALS", "пароль пароль", "  spaces  around  ", "x" * 40 + "y" * 40],
)
def test_a_long_password_of_any_composition_is_taken_as_it_is(
    alice: Browser, password: str
) -> None:
    answer = alice.submit(
        CHANGE, oldpassword="correct horse battery", password1=password, password2=password
    )
    assert answer.status_code == 302
    assert Browser().sign_in(EMAIL, password).status_code == 302
    for other in (password.strip()[:-1], password.swapcase(), password[:72] + "z"):
        assert Browser().sign_in(EMAIL, other).status_code != 302


@pytest.mark.parametrize("password", ["short", "123456789012", "password1234", "qwerty123456"])
def test_a_common_or_short_password_is_refused(password: str) -> None:
    with pytest.raises(ValidationError):
        validate_password(password)


def test_a_password_is_kept_by_a_slow_hash(acme: House, settings: Settings) -> None:
    """By Django's own choice; the tests' settings have a quick one."""
    assert not hasattr(control_plane.settings, "PASSWORD_HASHERS")
    settings.PASSWORD_HASHERS = global_settings.PASSWORD_HASHERS
    user: User = acme.people["owner"]
    user.set_password("correct horse battery")
    decoded = identify_hasher(user.password).decode(user.password)
    assert decoded["algorithm"] == "pbkdf2_sha256" and decoded["iterations"] >= 600_000


def test_the_forms_take_passwords_from_managers_and_hide_them(acme: House) -> None:
    html = Browser().get("/account/login/").content.decode()
    assert 'type="password"' in html and 'autocomplete="current-password' in html
    assert "onpaste" not in html
