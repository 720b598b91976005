"""Stripe's API on loopback, as far as we call it. Answers have the shapes of Stripe's public API
reference; a call with an idempotency key that came before gets the answer of then. What happens at
Stripe by itself, tests do: somebody pays, refunds, disputes."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

API_KEY = "sk_test_0123456789"
PAID_AT = 1_793_520_000


@dataclass(kw_only=True)
class Call:
    method: str
    path: str
    fields: dict[str, str]
    idempotency_key: str
    authorization: str


def listed(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": list(objects), "has_more": False, "url": "/v1/none"}


@dataclass(kw_only=True)
class StripeApi:
    url: str = ""
    calls: list[Call] = field(default_factory=list)
    made: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    # What the next calls of these paths fail with.
    failing: set[str] = field(default_factory=set)
    # By path: what there is to read.
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)

    def answer(self, call: Call) -> tuple[int, dict[str, Any]]:
        self.calls.append(call)
        if call.path in self.failing:
            message = "The currency is not supported."
            return 400, {"error": {"type": "invalid_request_error", "message": message}}
        if call.method == "GET":
            return self._read(call)
        # Without a key a call is new each time.
        key = call.idempotency_key if "penstock" in call.idempotency_key else str(len(self.calls))
        if key not in self.answers:
            self.answers[key] = self._make(call)
        return 200, self.answers[key]

    def _read(self, call: Call) -> tuple[int, dict[str, Any]]:
        if call.path == "/v1/invoice_payments":
            intent = call.fields["payment[payment_intent]"]
            found = [
                paid
                for each in self.objects.values()
                for paid in each.get("payments", {}).get("data", ())
                if paid["payment"].get("payment_intent") == intent
            ]
            return 200, listed(*found)
        if call.path in self.objects:
            return 200, self.objects[call.path]
        return 404, {
            "error": {
                "type": "invalid_request_error",
                "code": "resource_missing",
                "message": f"No such object: {call.path}",
            }
        }

    def _make(self, call: Call) -> dict[str, Any]:
        number = len(self.made) + 1
        match call.path.removeprefix("/v1/").split("/"):
            case ["customers", *_]:
                made = {"id": f"cus_{number}", "object": "customer", "livemode": False}
            case ["invoices"]:
                assert call.fields["collection_method"] == "send_invoice"
                made = _invoice(f"in_{number}", call.fields["metadata[penstock_invoice]"])
                self.objects[f"/v1/invoices/in_{number}"] = made
            case ["invoiceitems"]:
                made = {"id": f"ii_{number}", "object": "invoiceitem"}
                cents = int(call.fields["amount"])
                self.change(
                    call.fields["invoice"], total=cents, amount_due=cents, amount_remaining=cents
                )
            case ["invoices", invoice_id, "finalize"]:
                url = f"https://invoice.stripe.com/i/{invoice_id}"
                made = self.change(invoice_id, status="open", hosted_invoice_url=url)
            case ["invoices", invoice_id, "void"]:
                made = self.change(invoice_id, status="void")
            case _:
                raise AssertionError(f"nobody calls {call.path}")
        self.made.append(made)
        return made

    # What happens there -------------------------------------------------------------------------

    def change(self, invoice_id: str, **fields: Any) -> dict[str, Any]:
        """Change an invoice; what is read from now on says so."""
        found = self.objects[f"/v1/invoices/{invoice_id}"]
        changed = self.objects[f"/v1/invoices/{invoice_id}"] = {**found, **fields}
        return changed

    def pay(self, invoice_id: str, cents: int, *, currency: str = "usd") -> dict[str, Any]:
        """Somebody pays so much of an invoice; with the last of it Stripe calls it paid."""
        found = self.objects[f"/v1/invoices/{invoice_id}"]
        before = found["payments"]["data"]
        number = len(before) + 1
        payment = {
            "id": f"inpay_{invoice_id}_{number}",
            "object": "invoice_payment",
            "invoice": invoice_id,
            "amount_paid": cents,
            "amount_requested": cents,
            "currency": currency,
            "is_default": number == 1,
            "livemode": False,
            "created": PAID_AT,
            "status": "paid",
            "payment": {"type": "payment_intent", "payment_intent": f"pi_{invoice_id}_{number}"},
            "status_transitions": {"canceled_at": None, "paid_at": PAID_AT},
        }
        paid = found["amount_paid"] + cents
        left = max(0, found["amount_due"] - paid)
        return self.change(
            invoice_id,
            amount_paid=paid,
            amount_remaining=left,
            amount_overpaid=max(0, paid - found["amount_due"]),
            status="open" if left else "paid",
            payments=listed(*before, payment),
        )

    def refund(self, invoice_id: str, cents: int, status: str = "succeeded") -> dict[str, Any]:
        """A part of the first payment of an invoice is refunded."""
        made = {
            "id": f"re_{invoice_id}_{cents}",
            "object": "refund",
            "amount": cents,
            "currency": "usd",
            "charge": f"ch_{invoice_id}",
            "payment_intent": f"pi_{invoice_id}_1",
            "status": status,
        }
        self.objects[f"/v1/refunds/{made['id']}"] = made
        return made

    def dispute(self, invoice_id: str, status: str, *cents: int) -> dict[str, Any]:
        """The first payment of an invoice is disputed; `cents` are what has moved on our balance
        there, below zero where it was withdrawn."""
        made = {
            "id": f"dp_{invoice_id}",
            "object": "dispute",
            "amount": 3900,
            "currency": "usd",
            "charge": f"ch_{invoice_id}",
            "payment_intent": f"pi_{invoice_id}_1",
            "status": status,
            "balance_transactions": [
                {"id": f"txn_{place}", "object": "balance_transaction", "amount": each, "fee": 1500}
                for place, each in enumerate(cents)
            ],
        }
        self.objects[f"/v1/disputes/{made['id']}"] = made
        return made


def _invoice(stripe_id: str, number: str) -> dict[str, Any]:
    return {
        "id": stripe_id,
        "object": "invoice",
        "status": "draft",
        "hosted_invoice_url": None,
        "currency": "usd",
        "total": 0,
        "amount_due": 0,
        "amount_paid": 0,
        "amount_overpaid": 0,
        "amount_remaining": 0,
        "pre_payment_credit_notes_amount": 0,
        "post_payment_credit_notes_amount": 0,
        "payments": listed(),
        "metadata": {"penstock_invoice": number},
    }


@contextmanager
def stripe_api() -> Iterator[StripeApi]:
    api = StripeApi()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self._answer("POST", self.path, self.rfile.read(length).decode())

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            self._answer("GET", split.path, split.query)

        def _answer(self, method: str, path: str, fields: str) -> None:
            call = Call(
                method=method,
                path=path,
                fields=dict(parse_qsl(fields)),
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


def event_of(kind: str, about: dict[str, Any], event_id: str = "evt_1") -> dict[str, Any]:
    """An event about an object as it is now."""
    return {
        "id": event_id,
        "object": "event",
        "api_version": "2025-03-31.basil",
        "created": PAID_AT,
        "livemode": False,
        "pending_webhooks": 1,
        "type": kind,
        "request": {"id": None, "idempotency_key": None},
        "data": {"object": about},
    }
