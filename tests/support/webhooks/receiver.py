"""A tenant's server on loopback: it keeps what it is sent, and answers as it is told."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Received:
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


@dataclass(kw_only=True)
class Receiver:
    port: int
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"ok"
    # In place of an answer, where it is given.
    raw: bytes | None = None
    # While it is not set, the answer comes in bytes far between.
    hurry: threading.Event = field(default_factory=threading.Event)
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    server_names: list[str | None] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?of=acme"


@contextmanager
def a_receiver(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    server = _Server(("127.0.0.1", 0), _Handler)
    receiver = server.receiver = Receiver(port=server.server_address[1])
    receiver.hurry.set()
    if tls is not None:

        def note(_socket: object, name: str | None, _context: object) -> None:
            receiver.server_names.append(name)

        tls.sni_callback = note
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.hurry.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves, or does not like the certificate, is what tests are about."""

    def process_request(self, request: Any, client_address: Any) -> None:
        self.receiver.connections += 1
        super().process_request(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        receiver.requests.append(Received(path=self.path, headers=headers, body=body))
        if not receiver.hurry.is_set():
            self._trickle(receiver)
            return
        if receiver.raw is not None:
            self.wfile.write(receiver.raw)
            return
        self.send_response(receiver.status)
        for name, value in receiver.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(receiver.body)))
        self.end_headers()
        self.wfile.write(receiver.body)

    def _trickle(self, receiver: Receiver) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not receiver.hurry.wait(0.05):
            self.wfile.write(b"x")
            self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Nothing on the tests' output."""
