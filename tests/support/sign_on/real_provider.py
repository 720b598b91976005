"""A real OpenID Connect provider, allauth's own, as a Django process of its own on loopback.

python -m tests.support.sign_on.real_provider <port> <folder> <redirect address>    serves it
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urljoin
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import httpx

from tests.support.places import LOOPBACK, NO_TLS, ROOT, free_port

CLIENT_ID = "penstock"
CLIENT_SECRET = "a-secret-of-the-real-provider"
EMAIL = "carol@acme.example"
PASSWORD = "correct horse battery"
_MAX_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class RealProvider:
    issuer: str

    def approve(self, address: str, *, redirect_address: str) -> str:
        """Sign Carol in at the provider, as her browser does, and return the query that leads
        back."""
        with httpx.Client(verify=NO_TLS) as client:
            answer = client.get(address)
            for _ in range(_MAX_STEPS):
                if not answer.is_redirect:
                    fields = _hidden_fields(answer.text)
                    answer = client.post(
                        answer.url, data=fields | {"login": EMAIL, "password": PASSWORD}
                    )
                    assert answer.is_redirect, answer.text
                location = urljoin(str(answer.url), answer.headers["location"])
                if location.startswith(redirect_address):
                    return location.partition("?")[2]
                answer = client.get(location)
        raise AssertionError("the provider leads nowhere")


@contextmanager
def a_real_provider(folder: Path, *, redirect_address: str) -> Iterator[RealProvider]:
    port = free_port()
    command = [sys.executable, "-m", __name__, str(port), str(folder), redirect_address]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield RealProvider(issuer=f"http://{LOOPBACK}:{port}")
        finally:
            process.terminate()


class _Fields(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag == "input" and told.get("type") == "hidden":
            self.fields[str(told["name"])] = told.get("value") or ""


def _hidden_fields(page: str) -> dict[str, str]:
    parser = _Fields()
    parser.feed(page)
    return parser.fields


# The process ------------------------------------------------------------------------------------


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing on the tests' output."""


def _configure(folder: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )
    from django.conf import settings

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    settings.configure(
        SECRET_KEY="of a provider that lives as long as a test",
        ALLOWED_HOSTS=[LOOPBACK],
        ROOT_URLCONF="tests.support.sign_on.real_provider_urls",
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": folder / "provider.sqlite3",
            }
        },
        CACHES={
            "default": {
                "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
                "LOCATION": folder / "cache",
            }
        },
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "django.contrib.messages",
            "allauth",
            "allauth.account",
            "allauth.idp.oidc",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
            "allauth.account.middleware.AccountMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        AUTHENTICATION_BACKENDS=["allauth.account.auth_backends.AuthenticationBackend"],
        ACCOUNT_LOGIN_METHODS={"email"},
        ACCOUNT_SIGNUP_FIELDS=["email*", "password1*"],
        ACCOUNT_EMAIL_VERIFICATION="none",
        EMAIL_BACKEND="django.core.mail.backends.dummy.EmailBackend",
        IDP_OIDC_PRIVATE_KEY=pem,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )


def _fill(redirect_address: str) -> None:
    from allauth.account.models import EmailAddress
    from allauth.idp.oidc.models import Client
    from django.contrib.auth.models import User
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    carol = User.objects.create_user("carol", EMAIL, PASSWORD, first_name="Carol")
    EmailAddress.objects.create(user=carol, email=EMAIL, verified=True, primary=True)
    client = Client(id=CLIENT_ID, name="Penstock", skip_consent=True)
    client.set_secret(CLIENT_SECRET)
    client.set_scopes(["openid", "profile", "email"])
    client.set_redirect_uris([redirect_address])
    client.save()


def main() -> None:
    port, folder, redirect_address = sys.argv[1:]
    _configure(Path(folder))
    import django
    from django.core.wsgi import get_wsgi_application

    django.setup()
    _fill(redirect_address)
    application = get_wsgi_application()
    with make_server(LOOPBACK, int(port), application, _Server, _Handler) as server:
        print("ready", flush=True)  # noqa: T201
        server.serve_forever()


if __name__ == "__main__":
    main()
