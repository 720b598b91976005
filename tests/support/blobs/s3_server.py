"""moto's server, S3 as a process of its own on loopback, with one bucket."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from tests.support.places import NO_TLS, free_port
from tests.support.polling import eventually_sync

BUCKET = "penstock-blobs"
# moto asks for any.
CREDENTIALS = {"access_key_id": "testing", "secret_access_key": "testing"}


@dataclass(frozen=True, kw_only=True)
class S3Server:
    endpoint: str

    @property
    def url(self) -> str:
        """The bucket as `PENSTOCK_BLOB_STORE_URL` names it."""
        return f"s3://{BUCKET}/some/prefix?endpoint={self.endpoint}&region=us-east-1"

    def unfinished_uploads(self) -> int:
        """How many multipart uploads were neither completed nor aborted."""
        told = httpx.get(f"{self.endpoint}/{BUCKET}?uploads", verify=NO_TLS).text
        return told.count("<UploadId>")


@contextmanager
def s3_server() -> Iterator[S3Server]:
    port = free_port()
    server = S3Server(endpoint=f"http://127.0.0.1:{port}")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        eventually_sync(lambda: _is_up(server), timeout_seconds=60)
        # moto loads what it knows of S3 with the first request: six seconds beside other work.
        first = httpx.put(f"{server.endpoint}/{BUCKET}", verify=NO_TLS, timeout=60)
        first.raise_for_status()
        yield server
    finally:
        process.kill()
        process.wait()


def _is_up(server: S3Server) -> bool:
    try:
        return httpx.get(f"{server.endpoint}/moto-api/", verify=NO_TLS).status_code < 500
    except httpx.TransportError:
        return False
