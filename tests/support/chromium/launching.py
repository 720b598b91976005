"""The distribution's Chromium, which Playwright drives."""

import shutil
from typing import Final

FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium_path() -> str | None:
    """None on a machine without it."""
    return shutil.which("chromium")
