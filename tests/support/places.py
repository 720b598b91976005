"""Where the checkout lies, and what tests need of loopback."""

import secrets
import socket
import ssl
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
# `verify` of an httpx client that asks plain HTTP. Without it each client reads all certificates of
# the system, which takes longer than most of the answers that it gets.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


# Below the ports that the system gives out by itself, which begin at 32768 on Linux and higher
# elsewhere: a server that starts minutes later still finds its port free.
OWN_PORTS = range(15_000, 32_000)
# Those that `free_port` has tried in this process.
given_ports: set[int] = set()


def free_port() -> int:
    """A port that nothing has at this moment, and that no other program gets by chance."""
    for _ in range(100):
        # Of the system's randomness: Hypothesis sets that of `random` anew for every example.
        port = OWN_PORTS.start + secrets.randbelow(len(OWN_PORTS))
        given_ports.add(port)
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"No port of {OWN_PORTS.start} to {OWN_PORTS.stop - 1} was free.")
