import dataclasses
import re
from pathlib import Path

import pytest
from control_plane.env import GatewayEnvironment, InvalidSettings, Settings
from local_stack.settings import Ports

from gpu_workers.config import WorkerConfig
from tests.support.places import ROOT

GOOD = {
    "PENSTOCK_SECRET_KEY": "s" * 40,
    "PENSTOCK_API_KEY_PEPPER": "p" * 40,
    "PENSTOCK_DATABASE_URL": "postgresql://penstock:secret@db:5432/penstock",
    "PENSTOCK_DISPATCH_REDIS_URL": "redis://:secret@dispatch:6379/0",
    "PENSTOCK_REDIS_URL": "redis://cache:6379/0",
}


def test_the_example_file_names_exactly_the_variables_that_are_read() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    named = [match[1] for line in lines if (match := re.match(r"#? ?(PENSTOCK_\w+)=", line))]
    fields = {f"PENSTOCK_{field.name.upper()}" for field in dataclasses.fields(Settings)}
    ports = {Ports.variable(field.name) for field in dataclasses.fields(Ports)}
    assert len(named) == len(set(named))
    stack = ports | {"PENSTOCK_KEEP_ALIVE_SECONDS"}
    assert set(named) == fields | set(WorkerConfig.variables()) | stack


def test_every_field_of_the_settings_has_its_comment() -> None:
    lines = (ROOT / "platform/control_plane/env.py").read_text().splitlines()
    for field in dataclasses.fields(Settings):
        at = next(n for n, line in enumerate(lines) if line.startswith(f"    {field.name}: "))
        assert lines[at - 1].startswith("    # "), field.name


def test_only_secrets_and_servers_have_no_default() -> None:
    settings = Settings.from_environ(GOOD)
    assert settings.debug is False
    assert settings.max_body_bytes == 4 * 1024 * 1024
    assert settings.public_url == "http://127.0.0.1:8000"
    assert settings.allowed_origins == ("http://127.0.0.1:8000",)
    assert settings.trusted_proxies == ()
    assert settings.allow_clear_text is False
    assert settings.gateway_redis_url == settings.dispatch_redis_url
    assert settings.allowed_hosts == ("127.0.0.1", "localhost", "[::1]")
    assert (settings.log_format, settings.log_level) == ("console", "INFO")


def test_all_missing_variables_are_named_at_once() -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_environ({})
    assert set(caught.value.variables) == set(GOOD)
    assert all(name in str(caught.value) for name in GOOD)


def test_the_gateway_alone_needs_neither_postgresql_nor_djangos_secret() -> None:
    needed = ("PENSTOCK_API_KEY_PEPPER", "PENSTOCK_DISPATCH_REDIS_URL")
    environ = {name: GOOD[name] for name in needed}
    env = GatewayEnvironment.from_environ(environ)
    assert env.api_key_pepper == b"p" * 40
    assert env.gateway_redis_url == GOOD["PENSTOCK_DISPATCH_REDIS_URL"]
    url = "redis://gateway:secret@dispatch:6379/0"
    environ["PENSTOCK_GATEWAY_REDIS_URL"] = url
    assert GatewayEnvironment.from_environ(environ).gateway_redis_url == url
    del environ["PENSTOCK_DISPATCH_REDIS_URL"]
    assert GatewayEnvironment.from_environ(environ).gateway_redis_url == url


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_SECRET_KEY", "short"),
        ("PENSTOCK_DATABASE_URL", "mysql://db/penstock"),
        ("PENSTOCK_DATABASE_URL", "postgresql://db:5432"),
        ("PENSTOCK_DATABASE_URL", "postgresql://db:port/x"),
        ("PENSTOCK_REDIS_URL", "cache:6379"),
        ("PENSTOCK_PUBLIC_URL", "penstock.example"),
        ("PENSTOCK_ALLOWED_ORIGINS", "https://a.example/path"),
        ("PENSTOCK_MAX_BODY_BYTES", "4MB"),
        ("PENSTOCK_MAX_BODY_BYTES", "0"),
        ("PENSTOCK_DEBUG", "maybe"),
        ("PENSTOCK_TRUSTED_PROXIES", "proxy.example"),
        ("PENSTOCK_TRUSTED_PROXIES", "10.0.0.1/8"),
        ("PENSTOCK_TRUSTED_PROXIES", "0.0.0.0/0"),
        ("PENSTOCK_TRUSTED_PROXIES", "*"),
        ("PENSTOCK_ALLOW_CLEAR_TEXT", "sometimes"),
        ("PENSTOCK_GATEWAY_REDIS_URL", "dispatch:6379"),
        ("PENSTOCK_METRICS_TOKEN", "short"),
        ("PENSTOCK_TRACES_ENDPOINT", "collector:4318"),
        ("PENSTOCK_LOG_FORMAT", "xml"),
        ("PENSTOCK_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_value_is_told_with_its_name(name: str, value: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_environ(GOOD | {name: value})
    assert caught.value.variables == (name,)
    assert str(caught.value).startswith(name)


def test_a_problem_never_repeats_a_password() -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_environ(GOOD | {"PENSTOCK_DATABASE_URL": "mysql://me:hunter2@db/x"})
    assert "hunter2" not in str(caught.value)


def test_settings_do_not_show_their_secrets() -> None:
    text = repr(Settings.from_environ(GOOD))
    assert "secret@" not in text and "s" * 40 not in text and "p" * 40 not in text


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("f" * 40 + "\n")
    environ = dict(GOOD) | {"PENSTOCK_SECRET_KEY_FILE": str(tmp_path / "key")}
    del environ["PENSTOCK_SECRET_KEY"]
    assert Settings.from_environ(environ).secret_key == "f" * 40


@pytest.mark.parametrize("name", [*GOOD, "PENSTOCK_GATEWAY_REDIS_URL"])
def test_every_secret_and_every_url_with_a_password_can_come_from_a_file(
    tmp_path: Path, name: str
) -> None:
    value = GOOD.get(name, "redis://gateway:secret@dispatch:6379/0")
    (tmp_path / "file").write_text(f"{value}\n")
    environ = {given: GOOD[given] for given in GOOD if given != name}
    assert Settings.from_environ(environ | {f"{name}_FILE": str(tmp_path / "file")})
    with pytest.raises(InvalidSettings, match=re.escape(str(tmp_path / "none"))) as caught:
        Settings.from_environ(environ | {f"{name}_FILE": str(tmp_path / "none")})
    assert caught.value.variables == (f"{name}_FILE",)


def test_a_bad_secret_file_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    environ = GOOD | {
        "PENSTOCK_SECRET_KEY_FILE": str(tmp_path / "empty"),
        "PENSTOCK_REDIS_URL_FILE": str(tmp_path / "none"),
    }
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_environ(environ)
    # Each is given twice, and its file is no good.
    assert set(caught.value.variables) == {
        *("PENSTOCK_SECRET_KEY", "PENSTOCK_SECRET_KEY_FILE"),
        *("PENSTOCK_REDIS_URL", "PENSTOCK_REDIS_URL_FILE"),
    }
    assert str(tmp_path / "empty") in str(caught.value)
    assert str(tmp_path / "none") in str(caught.value)


def test_postgresql_can_be_reached_by_a_socket() -> None:
    url = "postgresql:///penstock?host=/run/postgresql"
    settings = Settings.from_environ(GOOD | {"PENSTOCK_DATABASE_URL": url})
    assert settings.database_url == url


def test_lists_are_separated_by_commas() -> None:
    settings = Settings.from_environ(
        GOOD
        | {
            "PENSTOCK_ALLOWED_HOSTS": "a.example, b.example,",
            "PENSTOCK_ALLOWED_ORIGINS": "https://a.example,http://localhost:3000",
            "PENSTOCK_TRUSTED_PROXIES": "10.0.0.0/8, 192.0.2.1, fd00::/8",
        }
    )
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert [str(network) for network in settings.trusted_proxies] == [
        *("10.0.0.0/8", "192.0.2.1/32", "fd00::/8")
    ]
    assert settings.allowed_origins == ("https://a.example", "http://localhost:3000")


def test_the_dispatch_redis_may_be_named_by_its_sentinels() -> None:
    url = "redis+sentinel://:secret@a:26379,b:26379/penstock/0"
    settings = Settings.from_environ(GOOD | {"PENSTOCK_DISPATCH_REDIS_URL": url})
    assert settings.gateway_redis_url == settings.dispatch_redis_url == url
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_environ(
            GOOD | {"PENSTOCK_DISPATCH_REDIS_URL": url.replace("/penstock/0", "")}
        )
    assert caught.value.variables == ("PENSTOCK_DISPATCH_REDIS_URL",)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_BLOB_STORE_URL", "/var/blobs"),
        ("PENSTOCK_BLOB_STORE_URL", "file:"),
        ("PENSTOCK_BLOB_STORE_URL", "file://host/blobs"),
        ("PENSTOCK_BLOB_STORE_URL", "s3:bucket"),
        ("PENSTOCK_BLOB_STORE_URL", "s3://key:secret@bucket"),
        ("PENSTOCK_BLOB_STORE_URL", "s3://bucket?secret_access_key=secret"),
        ("PENSTOCK_BLOB_STORE_URL", "gs://bucket"),
        ("PENSTOCK_EMAIL_URL", "http://mail:25"),
        ("PENSTOCK_EMAIL_URL", "smtp://me:secret@mail:25"),
        ("PENSTOCK_EMAIL_URL", "file:"),
        ("PENSTOCK_EMAIL_URL", "file://host/mail"),
        ("PENSTOCK_EMAIL_FROM", "nobody"),
        ("PENSTOCK_SIGN_UP", "everybody"),
        ("PENSTOCK_SIGN_UP_CREDIT", "-5"),
        ("PENSTOCK_SIGN_UP_CREDIT", "1e9"),
        ("PENSTOCK_WEBHOOK_DENIED_NETWORKS", "0.0.0.0/0"),
        ("PENSTOCK_WEBHOOK_ALLOW_LOOPBACK", "maybe"),
        ("PENSTOCK_PREVIOUS_SECRET_KEYS", "short"),
    ],
)
def test_what_the_control_plane_cannot_use_is_told(name: str, value: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings.from_environ(GOOD | {name: value})
    assert caught.value.variables == (name,)
    assert "secret@" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "smtps://me:secret@mail:465",
        "smtp+starttls://me:secret@mail",
        "smtp://relay:25",
        "file:/var/mail/penstock",
    ],
)
def test_a_mail_server_or_a_folder_for_mails_is_one_url(url: str) -> None:
    assert Settings.from_environ(GOOD | {"PENSTOCK_EMAIL_URL": url}).email_url == url
