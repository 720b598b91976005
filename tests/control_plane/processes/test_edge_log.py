"""What the proxy of compose writes of requests: nothing, not even where it cannot pass one on."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from tests.support.places import LOOPBACK, NO_TLS, ROOT, free_port

pytestmark = pytest.mark.skipif(
    shutil.which("caddy") is None,
    reason="the distribution's caddy, the proxy of compose, is not installed",
)
SECRET = "one-time-ticket-of-alice"


def test_a_failing_process_leaves_no_ticket_in_the_proxys_log(tmp_path: Path) -> None:
    edge, nobody = free_port(), free_port()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PENSTOCK_EDGE_PORT": str(edge),
        "PENSTOCK_EDGE_GATEWAY": f"{LOOPBACK} {nobody}",
        "PENSTOCK_EDGE_MANAGEMENT": f"{LOOPBACK} {nobody}",
    }
    command = ["caddy", "run", "--config", str(ROOT / "platform/edge/Caddyfile")]
    with (tmp_path / "log").open("wb") as log:
        caddy = subprocess.Popen(
            [*command, "--adapter", "caddyfile"], env=environ, stdout=log, stderr=log
        )
        try:
            with httpx.Client(
                base_url=f"http://{LOOPBACK}:{edge}",
                verify=NO_TLS,
                timeout=30,
                headers={"Authorization": f"Bearer {SECRET}"},
            ) as client:
                answers = [
                    _asked(client, path)
                    for path in (f"/ws/v1/stream?ticket={SECRET}", f"/account/join/{SECRET}/")
                ]
        finally:
            caddy.terminate()
            caddy.wait(timeout=10)
    assert answers == [502, 502]
    written = (tmp_path / "log").read_text()
    assert "connection refused" in written, "a fault is told"
    assert SECRET not in written


def _asked(client: httpx.Client, path: str) -> int:
    until = time.monotonic() + 10
    while True:
        try:
            return client.get(path).status_code
        except httpx.ConnectError:
            assert time.monotonic() < until, "the proxy did not start"
