"""The service that calls go to: `PENSTOCK_URL` with `PENSTOCK_API_KEY`, or else the stack that
`make up` has started in this checkout, as Acme."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from command_line.failures import Refused, Unreachable

if TYPE_CHECKING:  # takes a fifth of a second, which `penstock --help` need not wait for
    import httpx

DEMO_ENV: Final = Path(__file__).resolve().parents[2] / "var" / "demo.env"
WRITTEN: Final = object()
_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Service:
    url: str
    key: str

    @cached_property
    def client(self) -> "httpx.Client":
        import httpx

        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=_SECONDS)

    @cached_property
    def tenant_id(self) -> str:
        """Return the tenant of the key. Raises as `call` does."""
        return str(self.call("GET", "/api/v1/me")["tenants"][0]["id"])

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        into: BinaryIO | None = None,
    ) -> Any:
        """Return the JSON that is answered, None where nothing is, and `WRITTEN` where it is a
        file, which goes `into` another as it comes. Raises `Refused` and `Unreachable`."""
        with (
            reaching(self.url),
            self.client.stream(method, path, params=query, json=body) as answer,
        ):
            kind = answer.headers.get("content-type", "").partition(";")[0]
            if into is not None and answer.is_success and kind not in ("", "application/json"):
                for piece in answer.iter_bytes():
                    into.write(piece)
                return WRITTEN
            content = answer.read()
        if not answer.is_success:
            raise refusal(answer.status_code, content)
        return json.loads(content) if content else None


def the_service() -> Service:
    """Return the service to call. Raises `UsageError` where none is known."""
    url, key = os.environ.get("PENSTOCK_URL", ""), os.environ.get("PENSTOCK_API_KEY", "")
    if url and key:
        return Service(url=url.rstrip("/"), key=key)
    if not url and (demo := _demo()):
        return Service(url=demo["PENSTOCK_URL"], key=key or demo["PENSTOCK_ACME_KEY"])
    missing = "PENSTOCK_API_KEY" if url else "PENSTOCK_URL and PENSTOCK_API_KEY"
    raise click.UsageError(
        f"no service is known: set {missing}, or start one in this checkout with `make up`."
    )


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Tell what keeps one from a service in a line. Raises `Unreachable`."""
    import httpx

    try:
        yield
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise Unreachable(f"{url} is not reachable: {error or type(error).__name__}.") from None


def refusal(status: int, content: bytes) -> Refused:
    """Return a refused call as its service tells it."""
    try:
        error = json.loads(content)["error"]
        text, code = str(error["message"]), str(error["code"])
    except (ValueError, KeyError, TypeError):
        text, code = "no reason is given", str(status)
    return Refused(f"{text} ({code})")


def _demo() -> Mapping[str, str]:
    """Return what `make up` has written; nothing where it did not, or for somebody else."""
    from gpu_workers.config import read_env_file

    try:
        return read_env_file(DEMO_ENV)
    except OSError:
        return {}
