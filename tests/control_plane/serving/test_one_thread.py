"""A request of Django's changes threads once, whatever middleware stands before the view, and the
next one has its thread."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import SyncToAsync
from control_plane.serving.one_thread import OneThreadHandler
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import path
from django.utils.deprecation import MiddlewareMixin

# One that is not asynchronous, as whitenoise's is not.
PLAIN = ["control_plane.serving.static_files.StaticFilesMiddleware"]
# Kept, so that none is taken for one that has ended and whose number it got.
seen: list[threading.Thread] = []
is_held, may_end = threading.Event(), threading.Event()


class Noting(MiddlewareMixin):
    def process_request(self, _request: HttpRequest) -> None:
        seen.append(threading.current_thread())

    def process_response(
        self, _request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        seen.append(threading.current_thread())
        return response


def plain(_request: HttpRequest) -> HttpResponse:
    seen.append(threading.current_thread())
    return HttpResponse("plain")


async def coroutine(_request: HttpRequest) -> HttpResponse:
    seen.append(threading.current_thread())
    return HttpResponse("coroutine")


def held(_request: HttpRequest) -> HttpResponse:
    seen.append(threading.current_thread())
    is_held.set()
    may_end.wait(30)  # a test that fails ends, too
    return HttpResponse("held")


urlpatterns = [path("plain", plain), path("coroutine", coroutine), path("held", held)]


async def ask(
    handler: Callable[..., Any], address: str, leaves: asyncio.Event | None = None
) -> bytes:
    """Ask, and leave once `leaves` says so. -> what was answered until then"""
    said: list[dict[str, Any]] = []
    is_asked = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if is_asked.is_set():
            await (leaves or asyncio.Event()).wait()
            return {"type": "http.disconnect"}
        is_asked.set()
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    scope = {"type": "http", "method": "GET", "path": address, "headers": [], "query_string": b""}
    await handler(scope, receive, send)
    return b"".join(message.get("body", b"") for message in said)


def changes_of_thread(monkeypatch: pytest.MonkeyPatch, settings: Any, *, middleware: int) -> int:
    """Ask for a page behind so many middlewares. -> how often something was sent to a thread"""
    changes = 0
    ours: Callable[..., Any] = SyncToAsync.thread_handler

    def counted(self: Any, *args: Any) -> Any:
        nonlocal changes
        changes += 1
        return ours(self, *args)

    settings.MIDDLEWARE = [*PLAIN, *[f"{__name__}.Noting"] * middleware]
    with monkeypatch.context() as patch:
        patch.setattr(SyncToAsync, "thread_handler", counted)
        assert asyncio.run(ask(OneThreadHandler(), "/plain")) == b"plain"
    return changes


@pytest.fixture(autouse=True)
def addresses(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    settings.ALLOWED_HOSTS = ["*"]
    seen.clear()
    is_held.clear()
    may_end.clear()


def test_more_middleware_changes_threads_no_more_often(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    few = changes_of_thread(monkeypatch, settings, middleware=1)
    many = changes_of_thread(monkeypatch, settings, middleware=10)
    assert many == few
    assert len(set(seen)) == 2, "each request has a thread of its own"
    assert threading.current_thread() not in seen


def test_a_view_that_is_a_coroutine_runs_in_the_event_loop(settings: Any) -> None:
    settings.MIDDLEWARE = [*PLAIN, f"{__name__}.Noting"]
    assert asyncio.run(ask(OneThreadHandler(), "/coroutine")) == b"coroutine"
    before, view, after = seen
    assert view == threading.current_thread()
    assert before == after != view


async def ask_held(
    handler: OneThreadHandler, leaves: asyncio.Event | None = None
) -> "asyncio.Task[bytes]":
    """Ask for the page that waits; return once it does."""
    asked = asyncio.create_task(ask(handler, "/held", leaves))
    assert await asyncio.to_thread(is_held.wait, 30)
    return asked


def test_the_next_request_takes_the_thread_over(settings: Any) -> None:
    settings.MIDDLEWARE = PLAIN
    handler = OneThreadHandler()

    async def one_after_the_other() -> None:
        for _ in range(3):
            assert await ask(handler, "/plain") == b"plain"

    asyncio.run(one_after_the_other())
    assert len(seen) == 3 and len(set(seen)) == 1


def test_requests_at_a_time_have_a_thread_each(settings: Any) -> None:
    settings.MIDDLEWARE = PLAIN
    handler = OneThreadHandler()

    async def at_a_time() -> None:
        asked = await ask_held(handler)
        assert await ask(handler, "/plain") == b"plain"
        may_end.set()
        assert await asked == b"held"

    asyncio.run(at_a_time())
    assert len(set(seen)) == 2


def test_a_thread_that_still_works_for_who_has_left_is_nobody_elses(settings: Any) -> None:
    settings.MIDDLEWARE = PLAIN
    handler = OneThreadHandler()

    async def leave_and_ask() -> None:
        leaves = asyncio.Event()
        asked = await ask_held(handler, leaves)
        leaves.set()
        assert await ask(handler, "/plain") == b"plain"
        may_end.set()
        assert await asked == b""

    asyncio.run(leave_and_ask())
    assert len(set(seen)) == 2
