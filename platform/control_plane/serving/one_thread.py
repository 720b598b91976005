"""Django's ASGI handler with its whole chain, middleware and view, in one thread of the request.

Django's own asks each middleware whether it is asynchronous, and goes from the event loop to a
thread and back for each that is not. Ours are synchronous, and so are the views: that is a dozen
changes of thread a request. It starts a thread for each request, too, and another one that ends it;
here the next request takes it over.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponseBase

from tenants.isolation.scoping import give_connection_back

# Of those that are free; of a burst no more are left.
_KEPT_THREADS: Final = 16


class OneThreadHandler(ASGIHandler):
    """A view that is a coroutine runs in the event loop, as ever; answers are sent from there."""

    def __init__(self) -> None:
        super().__init__()
        self._free: list[ThreadPoolExecutor] = []

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        thread = self._free.pop() if self._free else ThreadPoolExecutor(max_workers=1)
        async with ThreadSensitiveContext(executor=thread):
            await super().__call__(scope, receive, send)
        # That of a request which broke off may still work: it ends with that, as nobody knows it.
        if len(self._free) < _KEPT_THREADS:
            self._free.append(thread)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        return await sync_to_async(self._respond, thread_sensitive=True)(request)

    def _respond(self, request: HttpRequest) -> HttpResponseBase:
        """Answer, and give the connection to the database back. Django would do so once the answer
        is sent, which takes as long as its reader likes: there are ten."""
        try:
            return self.get_response(request)
        finally:
            give_connection_back()
