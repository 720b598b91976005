"""One delivery over real sockets: what is sent, to which address, and how it ends."""

import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_django import Settings

from tenants.webhooks import checked_network, sending
from tenants.webhooks.addresses import check_reachable
from tenants.webhooks.problems import Problem
from tenants.webhooks.sending import Outcome
from tests.support.places import free_port
from tests.support.webhooks.receiver import Receiver, a_receiver

Resolve = Callable[..., list[str]]
HEADERS = {"content-type": "application/json", "webhook-id": "msg_1"}
BODY = '{"type":"webhook.test"}'


def post(url: str, **options: object) -> Outcome:
    return sending.send(url, owner="acme", headers=HEADERS, body=BODY, **options)  # type: ignore[arg-type]


def test_what_is_posted_arrives_as_it_was_signed(receiver: Receiver) -> None:
    outcome = post(receiver.url)
    assert (outcome.status_code, outcome.problem) == (200, None)
    assert outcome.response_excerpt == "ok"
    (request,) = receiver.requests
    assert request.path == "/hook?of=acme"
    assert request.body.decode() == BODY
    assert request.headers["webhook-id"] == "msg_1"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (204, None),
        (299, None),
        (301, Problem.REDIRECT),
        (307, Problem.REDIRECT),
        (400, Problem.STATUS),
        (404, Problem.STATUS),
        (410, Problem.GONE),
        (500, Problem.STATUS),
    ],
)
def test_only_2xx_is_taken(receiver: Receiver, status: int, problem: Problem | None) -> None:
    receiver.status, receiver.body = status, b""
    outcome = post(receiver.url)
    assert (outcome.status_code, outcome.problem) == (status, problem)


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    with a_receiver() as inner:
        receiver.status, receiver.headers = 307, {"Location": inner.url}
        assert post(receiver.url).problem is Problem.REDIRECT
        assert inner.connections == 0


def test_a_redirect_to_loopback_reaches_nothing_where_loopback_is_refused(
    resolve: Resolve, receiver: Receiver, settings: Settings
) -> None:
    settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK = False
    outcome = post(receiver.url.replace("http:", "https:"))
    assert outcome.problem is Problem.ADDRESS_REFUSED
    assert receiver.connections == 0


def test_a_proxy_of_the_environment_is_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_receiver() as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert post(receiver.url).problem is None
        assert (receiver.connections, proxy.connections) == (1, 0)


# The address ------------------------------------------------------------------------------------


def test_the_dns_is_asked_once_and_the_checked_address_is_connected_to(
    resolve: Resolve, receiver: Receiver
) -> None:
    """A second look-up would lead elsewhere."""
    asked = resolve("hooks.example.com", ["127.0.0.1"], ["10.0.0.1"])
    url = f"http://hooks.example.com:{receiver.port}/"
    assert post(url).problem is None
    assert asked == ["hooks.example.com"]
    assert receiver.requests[0].headers["host"] == f"hooks.example.com:{receiver.port}"
    outcome = post(url)
    assert outcome.problem is Problem.ADDRESS_REFUSED
    assert len(receiver.requests) == 1


def test_a_host_that_moved_into_a_private_network_is_not_connected_to(
    resolve: Resolve, receiver: Receiver, settings: Settings
) -> None:
    """DNS rebinding: public while the endpoint was made, this machine when it is sent to."""
    settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK = False
    resolve("hooks.example.com", ["93.184.216.34"], ["127.0.0.1"])
    url = f"https://hooks.example.com:{receiver.port}/"
    check_reachable(url, owner="acme")
    outcome = post(url)
    assert outcome.problem is Problem.ADDRESS_REFUSED
    assert "127.0.0.1" not in outcome.detail
    assert receiver.connections == 0


def test_one_private_address_beside_a_public_one_is_enough_to_refuse(
    resolve: Resolve, receiver: Receiver
) -> None:
    resolve("hooks.example.com", ["127.0.0.1", "10.0.0.1"])
    outcome = post(f"http://hooks.example.com:{receiver.port}/")
    assert outcome.problem is Problem.ADDRESS_REFUSED
    assert receiver.connections == 0


def test_the_next_address_is_tried_where_the_first_does_not_answer(
    resolve: Resolve, receiver: Receiver
) -> None:
    resolve("hooks.example.com", ["::1", "127.0.0.1"])
    assert post(f"http://hooks.example.com:{receiver.port}/").problem is None


def test_a_connection_that_led_to_another_address_is_not_used(
    resolve: Resolve, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_network, "peer_address", lambda _stream: None)
    assert post(receiver.url).problem is Problem.ADDRESS_REFUSED
    assert receiver.requests == []


# TLS --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of hooks.example.com in one file, trusted by nobody but who loads it."""
    folder = tmp_path_factory.mktemp("tls")
    both = folder / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=hooks.example.com"]
    command += ["-addext", "subjectAltName=DNS:hooks.example.com"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run(command, check=True, capture_output=True)
    parts = [(folder / name).read_text() for name in ("key.pem", "certificate.pem")]
    both.write_text("".join(parts))
    return both


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.mark.usefixtures("loopback_allowed")
def test_tls_and_host_are_the_urls_though_the_connection_is_to_an_address(
    resolve: Resolve, certificate: Path
) -> None:
    resolve("hooks.example.com", ["127.0.0.1"])
    trusting = ssl.create_default_context(cafile=str(certificate))
    with a_receiver(server_context(certificate)) as receiver:
        url = f"https://hooks.example.com:{receiver.port}/hook"
        assert post(url, ssl_context=trusting).problem is None
        assert receiver.server_names == ["hooks.example.com"]
        assert receiver.requests[0].headers["host"] == f"hooks.example.com:{receiver.port}"


@pytest.mark.usefixtures("loopback_allowed")
@pytest.mark.parametrize("host", ["other.example.com", "hooks.example.com"])
def test_a_certificate_of_another_host_or_of_nobody_we_trust_is_refused(
    resolve: Resolve, certificate: Path, host: str
) -> None:
    resolve(host, ["127.0.0.1"])
    trusting = ssl.create_default_context(cafile=str(certificate))
    context = trusting if host == "other.example.com" else None
    with a_receiver(server_context(certificate)) as receiver:
        outcome = post(f"https://{host}:{receiver.port}/", ssl_context=context)
        assert outcome.problem is Problem.TLS_FAILED
        assert outcome.detail
        assert receiver.requests == []


# What goes wrong --------------------------------------------------------------------------------


@pytest.mark.usefixtures("loopback_allowed")
def test_nobody_listening_is_said_so() -> None:
    outcome = post(f"http://127.0.0.1:{free_port()}/")
    assert (outcome.problem, outcome.status_code) == (Problem.CONNECT_FAILED, None)


def test_a_host_without_an_address_is_said_so(resolve: Resolve) -> None:
    assert post("https://nowhere.example.com/").problem is Problem.UNRESOLVABLE


def test_an_answer_that_never_ends_ends_in_time(receiver: Receiver) -> None:
    """It is not each byte that has its time, but the whole."""
    receiver.hurry.clear()
    outcome = post(receiver.url, total_seconds=0.4)
    assert outcome.problem is Problem.TIMEOUT
    assert 400 <= outcome.duration_ms < 5000


def test_of_a_huge_answer_only_the_start_is_read_and_shown(receiver: Receiver) -> None:
    receiver.body = b"x" * 50_000_000
    outcome = post(receiver.url)
    assert outcome.problem is None
    assert outcome.response_excerpt == "x" * 1000


def test_an_answers_controls_are_not_shown(receiver: Receiver) -> None:
    receiver.body = b"\x00\x1b[31mred\xff\n" + "\u202edesrever".encode()
    assert post(receiver.url).response_excerpt == "��[31mred�\n�desrever"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("120", 120),
        ("0", None),
        ("-5", None),
        ("soon", None),
        ("9" * 40, None),
        ("99999999", 6 * 3600),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 6 * 3600),
    ],
)
def test_retry_after_is_read_where_it_makes_sense(
    receiver: Receiver, given: str, seconds: int | None
) -> None:
    receiver.status, receiver.headers = 503, {"Retry-After": given}
    assert post(receiver.url).retry_after_seconds == seconds


@pytest.mark.parametrize("raw", [b"SSH-2.0-OpenSSH_9.9\r\n", b"HTTP/1.1 200 OK\r\nbroken", b""])
def test_what_is_no_http_is_said_so(receiver: Receiver, raw: bytes) -> None:
    receiver.raw = raw
    outcome = post(receiver.url)
    assert (outcome.problem, outcome.status_code) == (Problem.BAD_ANSWER, None)
