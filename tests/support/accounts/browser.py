"""Somebody with a browser, without JavaScript: cookies, and forms with their CSRF token."""

import re
from typing import Any

from django.core import mail
from django.test import Client

from tests.support.two_tenants import PASSWORD

LOGIN = "/account/login/"
_PUBLIC = "http://testserver"


class Browser:
    def __init__(self, address: str = "192.0.2.1") -> None:
        self.http = Client(enforce_csrf_checks=True, REMOTE_ADDR=address)

    def get(self, path: str) -> Any:
        return self.http.get(path)

    def submit(self, path: str, **fields: str) -> Any:
        """Open the page and send its form."""
        page = self.http.get(path)
        if page.status_code == 302:
            path = page["Location"]
            self.http.get(path)
        return self.send(path, **fields)

    def send(self, path: str, **fields: str) -> Any:
        """Send a form of the page that is open."""
        if "penstock_csrf" not in self.http.cookies:
            self.http.get(LOGIN)  # a page that refuses has no form
        token = self.http.cookies["penstock_csrf"].value
        return self.http.post(path, fields | {"csrfmiddlewaretoken": token})

    def sign_in(self, email: str, password: str = PASSWORD, **fields: str) -> Any:
        return self.submit(LOGIN, login=email, password=password, **fields)

    @property
    def email(self) -> str | None:
        """Who is signed in."""
        user = self.http.get("/api/v1/session").json()["user"]
        return None if user is None else str(user["email"])


def link_in_mail(number: int = -1) -> str:
    """The path of the link in one of the e-mails sent, the last one by default."""
    found = re.search(rf"{_PUBLIC}(/account/\S+)", str(mail.outbox[number].body))
    assert found is not None, mail.outbox[number].body
    return found[1]
