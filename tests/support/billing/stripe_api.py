"""Stripe's API on loopback, as far as we call it. Answers have the shapes of Stripe's public API
reference; a call with an idempotency key that came before gets the answer of then."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

API_KEY = "sk_test_0123456789"


@dataclass(kw_only=True)
class Call:
    path: str
    fields: dict[str, str]
    idempotency_key: str
    authorization: str


@dataclass(kw_only=True)
class StripeApi:
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    made: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    # What the next calls of these paths fail with.
    failing: set[str] = field(default_factory=set)

    def answer(self, call: Call) -> tuple[int, dict[str, Any]]:
        self.calls.append(call)
        if call.path in self.failing:
            message = "The currency is not supported."
            return 400, {"error": {"type": "invalid_request_error", "message": message}}
        if call.idempotency_key not in self.answers:
            self.answers[call.idempotency_key] = self._make(call)
        return 200, self.answers[call.idempotency_key]

    def _make(self, call: Call) -> dict[str, Any]:
        number = len(self.made) + 1
        match call.path.removeprefix("/v1/").split("/"):
            case ["customers"]:
                made = {"id": f"cus_{number}", "object": "customer", "livemode": False}
            case ["invoices"]:
                made = {
                    "id": f"in_{number}",
                    "object": "invoice",
                    "status": "draft",
                    "hosted_invoice_url": None,
                }
            case ["invoiceitems"]:
                made = {"id": f"ii_{number}", "object": "invoiceitem"}
            case ["invoices", invoice_id, "finalize"]:
                made = {
                    "id": invoice_id,
                    "object": "invoice",
                    "status": "open",
                    "hosted_invoice_url": f"https://invoice.stripe.com/i/{invoice_id}",
                }
            case ["invoices", invoice_id, "void"]:
                made = {"id": invoice_id, "object": "invoice", "status": "void"}
            case _:
                raise AssertionError(f"nobody calls {call.path}")
        self.made.append(made)
        return made


@contextmanager
def stripe_api() -> Iterator[StripeApi]:
    api = StripeApi()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            call = Call(
                path=self.path,
                fields=dict(parse_qsl(self.rfile.read(length).decode())),
                idempotency_key=self.headers.get("Idempotency-Key", ""),
                authorization=self.headers.get("Authorization", ""),
            )
            status, answer = api.answer(call)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def paid_event(*, invoice_id: object, stripe_id: str, cents: int, **changes: Any) -> dict[str, Any]:
    """`invoice.paid`, with the fields of Stripe's reference that a receiver looks at."""
    return {
        "id": "evt_1PgafmB7WZ01zgkWoqLgQDt6",
        "object": "event",
        "api_version": "2025-03-31.basil",
        "created": 1_793_520_000,
        "livemode": False,
        "pending_webhooks": 1,
        "type": "invoice.paid",
        "request": {"id": None, "idempotency_key": None},
        "data": {
            "object": {
                "id": stripe_id,
                "object": "invoice",
                "amount_due": cents,
                "amount_paid": cents,
                "amount_remaining": 0,
                "currency": "usd",
                "customer": "cus_1",
                "status": "paid",
                "collection_method": "send_invoice",
                "metadata": {"penstock_invoice": str(invoice_id)},
            }
        },
    } | changes
