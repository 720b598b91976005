"""A tenant that brings adapters by the public API, as docs/adapters.md says, and asks them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx

from tests.benchmarks.load.exchange import FIRST_CONTENT
from tests.support.places import NO_TLS

_TIMEOUT_SECONDS: Final = 60.0
_READY_SECONDS: Final = 120.0
# Between two questions of whoever waits; what it sees is late by half of it.
PAUSE_SECONDS: Final = 0.05
# A worker may have it, unasked, before anybody looks again.
READY: Final = ("ready", "live")


class NotTaken(RuntimeError):
    """The API refused what it was to take."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """`name` is what requests ask for: `acme/support@3`."""

    number: int
    name: str
    address: str


class AdapterOwner:
    """One tenant with one adapter, whose versions are what it brings."""

    def __init__(self, url: str, api_key: str, model: str, slug: str) -> None:
        self._http = _client(url, api_key)
        [tenant] = self._ask("GET", "/api/v1/me")["tenants"]
        adapters = f"/api/v1/tenants/{tenant['id']}/adapters"
        made = self._ask("POST", adapters, json={"slug": slug, "model": model})
        self.name = str(made["name"])
        self._versions = f"{adapters}/{made['id']}/versions"

    def bring(self, archive: bytes) -> Version:
        """Upload a zip and make it the next version, which is looked at from then on. Raises
        `NotTaken`."""
        upload = self._ask(
            "POST",
            "/v1/uploads",
            json={
                "filename": "adapter.zip",
                "purpose": "adapter",
                "bytes": len(archive),
                "mime_type": "application/zip",
            },
        )
        address = f"/v1/uploads/{upload['id']}"
        part = self._ask("POST", f"{address}/parts", files={"data": archive})
        done = self._ask("POST", f"{address}/complete", json={"part_ids": [part["id"]]})
        made = self._ask("POST", self._versions, json={"file_id": done["file"]["id"]})
        return Version(
            number=made["number"],
            name=f"{self.name}@{made['number']}",
            address=f"{self._versions}/{made['id']}",
        )

    def wait_until(self, version: Version, *states: str) -> float:
        """Return when (`perf_counter`) a version was first seen in one of these states. Raises
        `NotTaken` where it was refused, and after two minutes."""
        deadline = time.perf_counter() + _READY_SECONDS
        while (now := time.perf_counter()) < deadline:
            shown = self._ask("GET", version.address)
            if shown["state"] in states:
                return time.perf_counter()
            if shown["state"] == "refused":
                raise NotTaken(f"{version.name}: {shown['refusal']}")
            time.sleep(max(0.0, now + PAUSE_SECONDS - time.perf_counter()))
        raise NotTaken(f"{version.name} was not {' or '.join(states)} in {_READY_SECONDS:.0f} s")

    def close(self) -> None:
        self._http.close()

    def _ask(self, method: str, address: str, **body: Any) -> dict[str, Any]:
        answer = self._http.request(method, address, **body)
        while answer.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            time.sleep(float(answer.headers["Retry-After"]))
            answer = self._http.request(method, address, **body)
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            raise NotTaken(f"{method} {address}: {answer.status_code} {answer.text[:300]}")
        told: dict[str, Any] = answer.json()
        return told


@dataclass(frozen=True, kw_only=True)
class FirstToken:
    """`asked_at` of the request that was taken, `at` of its first token, by `perf_counter`."""

    asked_at: float
    at: float

    @property
    def ttft_ms(self) -> float:
        return 1000 * (self.at - self.asked_at)


class Asker:
    """Streams answers to one tenant, one after the other."""

    def __init__(self, url: str, api_key: str) -> None:
        self._http = _client(url, api_key)

    def ask(
        self,
        model: str,
        prompt: str,
        max_tokens: int,
        *,
        and_then: Callable[[], object] | None = None,
    ) -> FirstToken | None:
        """Read an answer to its end, or where `and_then` is given to its first token, call that and
        hang up; None where there is no such model. Raises `NotTaken` for any other refusal, and for
        an answer without a token."""
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": True,
        }
        first_at: float | None = None
        asked_at = time.perf_counter()
        with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code == HTTPStatus.NOT_FOUND:
                answer.read()
                return None
            if answer.status_code != HTTPStatus.OK:
                raise NotTaken(f"{model}: {answer.status_code} {answer.read()[:300]!r}")
            for line in answer.iter_lines():
                if first_at is None and FIRST_CONTENT.search(line.encode()):
                    first_at = time.perf_counter()
                    if and_then is not None:
                        and_then()
                        break
        if first_at is None:
            raise NotTaken(f"{model} answered without a token")
        return FirstToken(asked_at=asked_at, at=first_at)

    def ask_until_there(
        self,
        model: str,
        prompt: str,
        max_tokens: int,
        *,
        and_then: Callable[[], object] | None = None,
    ) -> FirstToken:
        """Ask again and again until there is such a model. Raises as `ask`."""
        deadline = time.perf_counter() + _TIMEOUT_SECONDS
        while time.perf_counter() < deadline:
            first = self.ask(model, prompt, max_tokens, and_then=and_then)
            if first is not None:
                return first
            time.sleep(PAUSE_SECONDS)
        raise NotTaken(f"{model} is still unknown after {_TIMEOUT_SECONDS:.0f} s")

    def close(self) -> None:
        self._http.close()


def _client(url: str, api_key: str) -> httpx.Client:
    return httpx.Client(
        base_url=url,
        headers={"Authorization": f"Bearer {api_key}"},
        timeout=_TIMEOUT_SECONDS,
        trust_env=False,
        verify=NO_TLS,
    )
