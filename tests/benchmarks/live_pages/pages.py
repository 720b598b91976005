"""Open pages: each asks for its panels as often as it says, as `live.js` does while it is seen."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import httpx

from tests.support.places import NO_TLS
from tests.support.stack_addresses import Person

# A first reading may be of a whole week.
_PATIENCE_SECONDS: Final = 30.0
_PANELS: Final = re.compile(r'hx-get="([^"]+)" hx-trigger="live"[^>]* data-live-ms="(\d+)"')
_TOKEN: Final = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
_LINK: Final = re.compile(r'href="(/admin/(?:dashboards/[a-z]+/)?)"')


class PageError(RuntimeError):
    """A page that answered something that is no page."""


@dataclass(kw_only=True)
class Asked:
    """What open pages have asked for: the milliseconds of each answer, and its bytes."""

    milliseconds: list[float] = field(default_factory=list)
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class OpenPage:
    """The address of a page's panels, how often it asks for them, and who has it open."""

    address: str
    every_seconds: float
    cookies: dict[str, str]


def dashboards(url: str, operator: Person) -> list[OpenPage]:
    """Open each dashboard of the sidebar once as an operator. Raises `PageError`."""
    with _client(url) as client:
        _sign_in(client, "/admin/login/", username=operator.email, password=operator.password)
        addresses = dict.fromkeys(_LINK.findall(_text(client.get("/admin/"))))
        found = [_open_page(client, client.get(address)) for address in addresses]
        return [page for page in found if page is not None]


def overview(url: str, owner: Person) -> OpenPage:
    """Open the overview of an organisation as its owner, once its first answer is on record.
    Raises `PageError`."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with _client(url) as client:
        _sign_in(client, "/account/login/", login=owner.email, password=owner.password)
        while time.monotonic() < deadline:
            page = _open_page(client, client.get("/t/", follow_redirects=True))
            if page is not None:
                return page
            time.sleep(0.5)
        raise PageError("expected an overview with panels, got another page")


def _open_page(client: httpx.Client, answer: httpx.Response) -> OpenPage | None:
    match = _PANELS.search(_text(answer))
    if match is None:
        return None
    return OpenPage(
        address=match[1].replace("&amp;", "&"),
        every_seconds=int(match[2]) / 1000,
        cookies=dict(client.cookies),
    )


def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, verify=NO_TLS, timeout=_PATIENCE_SECONDS)


def _sign_in(client: httpx.Client, address: str, **form: str) -> None:
    token = _TOKEN.search(_text(client.get(address)))
    if token is None:
        raise PageError("expected a form to sign in, got another page")
    referer = {"Referer": f"{client.base_url}{address.removeprefix('/')}"}
    form["csrfmiddlewaretoken"] = token[1]
    answer = client.post(address, data=form, headers=referer)
    if answer.status_code != httpx.codes.FOUND:
        raise PageError(f"expected a redirect after signing in, got {answer.status_code}")


@contextmanager
def open_pages(url: str, pages: Sequence[OpenPage]) -> Iterator[Asked]:
    """Keep the pages open until the block ends; it begins once each of them has been answered.
    Raises `PageError` where one was not, at its end."""
    asked, are_open, is_over = Asked(), threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(_keep_open(url, pages, asked, are_open, is_over))
        except* (httpx.HTTPError, PageError) as group:
            failures.extend(group.exceptions)
        finally:
            are_open.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        are_open.wait()
        asked.milliseconds.clear()
        asked.bytes = 0
        yield asked
    finally:
        is_over.set()
        thread.join()
    if failures:
        raise PageError(f"a page was not answered: {failures[0]!r}")


async def _keep_open(
    url: str,
    pages: Sequence[OpenPage],
    asked: Asked,
    are_open: threading.Event,
    is_over: threading.Event,
) -> None:
    # Each browser has a connection of its own.
    limits = httpx.Limits(max_keepalive_connections=len(pages))
    async with (
        httpx.AsyncClient(
            base_url=url,
            verify=NO_TLS,
            timeout=_PATIENCE_SECONDS,
            limits=limits,
            headers={"HX-Request": "true"},
        ) as client,
        asyncio.TaskGroup() as group,
    ):
        firsts = [asyncio.Event() for _ in pages]
        for place, page in enumerate(pages):
            # People open their pages at any moment.
            pause = page.every_seconds * place / len(pages)
            group.create_task(_page(client, page, pause, firsts[place], asked, is_over))
        for first in firsts:
            await first.wait()
        are_open.set()


async def _page(
    client: httpx.AsyncClient,
    page: OpenPage,
    pause: float,
    first: asyncio.Event,
    asked: Asked,
    is_over: threading.Event,
) -> None:
    await asyncio.sleep(pause)
    while not is_over.is_set():
        began = time.perf_counter()
        cookies = "; ".join(f"{name}={value}" for name, value in page.cookies.items())
        text = _text(await client.get(page.address, headers={"Cookie": cookies}))
        seconds = time.perf_counter() - began
        asked.milliseconds.append(seconds * 1000)
        asked.bytes += len(text)
        first.set()
        await asyncio.sleep(max(0.0, page.every_seconds - seconds))


def _text(answer: httpx.Response) -> str:
    if answer.status_code != httpx.codes.OK:
        raise PageError(f"expected 200 of {answer.url.path}, got {answer.status_code}")
    return answer.text
