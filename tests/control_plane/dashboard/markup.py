"""What of a page its Content-Security-Policy would refuse, or would load from elsewhere."""

from html.parser import HTMLParser
from typing import Final
from urllib.parse import urlsplit

_ADDRESSES: Final = {"href", "src", "action", "formaction", "poster", "srcset", "hx-get", "hx-post"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in_script = tag == "script"
        if tag in {"style", "base", "object", "embed", "iframe"}:
            self.problems.append(f"<{tag}>")
        if tag == "script" and "src" not in given:
            self.problems.append("<script> without src")
        for name, value in given.items():
            if name == "style" or name.startswith(("on", "hx-on")):
                self.problems.append(f"<{tag} {name}={value!r}>")
            if name in _ADDRESSES and _is_foreign(value):
                self.problems.append(f"<{tag} {name}={value!r}>")

    def handle_data(self, data: str) -> None:
        if self._in_script and data.strip():
            self.problems.append("text in <script>")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False


def problems_of(html: str) -> list[str]:
    """Inline style, script and handlers, elements that the policy forbids, addresses of other hosts
    or schemes."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.problems


def _is_foreign(address: str) -> bool:
    parts = urlsplit(address.strip())
    return bool(parts.scheme or parts.netloc)
