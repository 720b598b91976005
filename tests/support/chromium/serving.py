"""The pages on a port of their own, in a thread of whoever drives Chromium."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

import uvicorn

from tests.support.places import LOOPBACK

_STARTING_SECONDS: Final = 30


@contextmanager
def serving(
    application: Any, port: int, *, lifespan: Literal["on", "off"] = "off"
) -> Iterator[str]:
    """Serve an ASGI application in a thread; yields its address."""
    config = uvicorn.Config(
        application, host=LOOPBACK, port=port, lifespan=lifespan, log_level="error"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + _STARTING_SECONDS
    while not server.started:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the pages' server did not start within {_STARTING_SECONDS} s")
        time.sleep(0.05)
    try:
        yield f"http://{LOOPBACK}:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
