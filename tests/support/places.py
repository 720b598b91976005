"""Where the checkout lies, and what tests need of loopback."""

import socket
import ssl
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
# `verify` of an httpx client that asks plain HTTP. Without it each client reads all certificates of
# the system, which takes longer than most of the answers that it gets.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def free_port() -> int:
    """A port that nothing has at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
