"""Django's ASGI handler with its whole chain, middleware and view, in one thread of the request.

Django's own asks each middleware whether it is asynchronous, and goes from the event loop to a
thread and back for each that is not. Ours are synchronous, and so are the views: that is a dozen
changes of thread a request.
"""

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponseBase

from tenants.isolation.scoping import give_connection_back


class OneThreadHandler(ASGIHandler):
    """A view that is a coroutine runs in the event loop, as ever; answers are sent from there."""

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        return await sync_to_async(self._respond, thread_sensitive=True)(request)

    def _respond(self, request: HttpRequest) -> HttpResponseBase:
        """Answer, and give the connection to the database back. Django would do so once the answer
        is sent, which takes as long as its reader likes: there are ten."""
        try:
            return self.get_response(request)
        finally:
            give_connection_back()
