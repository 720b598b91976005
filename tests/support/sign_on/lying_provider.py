"""An OpenID Connect provider on loopback that says what a test tells it: true answers by default,
each part of which can be made a lie."""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID = "penstock-of-acme"
CLIENT_SECRET = "a-secret-of-acmes-client"


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


_KEYS = {"honest": new_key(), "another": new_key()}


@dataclass
class Exchange:
    """What came to the token endpoint."""

    form: dict[str, str]


@dataclass
class LyingProvider:
    port: int
    # Claims beside, or instead of, the true ones; None leaves one out.
    claims: dict[str, Any] = field(default_factory=dict)
    algorithm: str = "RS256"
    signing_key: str = "honest"
    headers: dict[str, Any] = field(default_factory=dict)
    discovery: dict[str, Any] = field(default_factory=dict)
    # By path, an answer in place of the true one: status, headers, body.
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    id_tokens: list[str] = field(default_factory=list)
    # An old token, sent again.
    repeated: str | None = None
    _asked: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def approve(self, address: str) -> str:
        """Do what the browser and the provider do at the authorization endpoint; return the query
        of the answer."""
        asked = {name: each[0] for name, each in parse_qs(urlsplit(address).query).items()}
        code = f"code-{len(self._asked)}"
        self._asked[code] = asked
        return f"code={code}&state={asked['state']}"

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        self.paths.append(path)
        if path in self.answers:
            return self.answers[path]
        told: dict[str, Any]
        match path:
            case "/.well-known/openid-configuration":
                told = {
                    "issuer": self.issuer,
                    "authorization_endpoint": f"{self.issuer}/authorize",
                    "token_endpoint": f"{self.issuer}/token",
                    "jwks_uri": f"{self.issuer}/keys",
                } | self.discovery
            case "/keys":
                public = _KEYS["honest"].public_key()
                key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(public))
                told = {"keys": [key | {"kid": "1", "use": "sig"}]}
            case "/token":
                self.exchanges.append(Exchange(form))
                told = self._token(form)
            case _:
                return 404, {}, b""
        return 200, {"Content-Type": "application/json"}, json.dumps(told).encode()

    def _token(self, form: dict[str, str]) -> dict[str, Any]:
        asked = self._asked.get(form.get("code", ""), {})
        verifier = form.get("code_verifier", "")
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked.get("code_challenge") != challenge or form.get("client_secret") != CLIENT_SECRET:
            return {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": "subject-1",
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": asked.get("nonce"),
            "email": "new@acme.example",
            "email_verified": True,
            "name": "New Person",
        } | self.claims
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.algorithm == "none":
            token = jwt.encode(claims, "", algorithm="none")
        elif self.algorithm == "HS256":
            token = jwt.encode(
                claims, CLIENT_SECRET.ljust(32), algorithm="HS256", headers={"kid": "1"}
            )
        else:
            key = _KEYS[self.signing_key]
            token = jwt.encode(
                claims, key, algorithm=self.algorithm, headers={"kid": "1"} | self.headers
            )
        self.id_tokens.append(token)
        return {"access_token": "a", "token_type": "Bearer", "id_token": self.repeated or token}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/authorize"):
            self._lead_back()
        else:
            self._answer({})

    def _lead_back(self) -> None:
        """What a browser finds that is signed in here already."""
        asked = parse_qs(urlsplit(self.path).query)
        query = self.server.provider.approve(self.path)  # type: ignore[attr-defined]
        self.send_response(302)
        self.send_header("Location", f"{asked['redirect_uri'][0]}?{query}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer({name: each[0] for name, each in parse_qs(body).items()})

    def _answer(self, form: dict[str, str]) -> None:
        answer: Callable[[str, dict[str, str]], tuple[int, dict[str, str], bytes]]
        answer = self.server.provider.answer  # type: ignore[attr-defined]
        status, headers, body = answer(urlsplit(self.path).path, form)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing on the tests' output."""


class _Server(ThreadingHTTPServer):
    provider: LyingProvider

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is what tests are about."""


@contextmanager
def a_lying_provider() -> Iterator[LyingProvider]:
    server = _Server(("127.0.0.1", 0), _Handler)
    provider = server.provider = LyingProvider(port=server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
