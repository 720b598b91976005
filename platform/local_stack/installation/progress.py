"""Progress on standard output: one line that is overwritten. Standard library only."""

import os
import shutil
import time
from typing import Self, TextIO

SECONDS_BETWEEN_LINES = 15.0
_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Lines that stay, and one for the current activity.

    On a terminal the activity is one line that is overwritten; elsewhere (a log, a pipe) it is a
    new line at most every fifteen seconds. At the end of a `with` block it is removed.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = ""
        self._shown_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self.clear()
        self._write(f"{line}\n")

    def show(self, text: str) -> None:
        """Replace the line of the current activity."""
        now = time.monotonic()
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            if text[:width] != self._shown:
                self.clear()
                self._shown = text[:width]
                self._write(self._shown)
        elif now - self._shown_at >= SECONDS_BETWEEN_LINES:
            self._shown_at = now
            self._write(f"{text}\n")

    def clear(self) -> None:
        """Remove the line of the current activity, so that others can write."""
        if self._shown:
            self._shown = ""
            self._write(_CLEAR_LINE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
