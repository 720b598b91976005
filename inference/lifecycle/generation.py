"""An admitted request as its door sees it: output to read, an end to wait for or to ask for."""

import asyncio
import time

from gpu_workers.protocol.messages import Terminal
from inference.admission.limits import Headers
from inference.errors import InferenceError
from inference.lifecycle.cancellation import Cancellations
from inference.lifecycle.inflight_request import InflightRequest
from inference.lifecycle.saturation import Notice
from inference.lifecycle.signals import metrics
from inference.streaming.token_stream import Progress, Write


class Generation:
    """What a door holds of its request."""

    def __init__(self, request: InflightRequest, cancellations: Cancellations) -> None:
        self._request = request
        self._cancellations = cancellations
        self._is_ttft_seen = False

    @property
    def request_id(self) -> str:
        return self._request.request_id

    @property
    def notice(self) -> Notice:
        return self._request.notice

    @property
    def headers(self) -> Headers:
        """Return what an HTTP answer tells of the caller's limits, of what it did not ask for, and
        which version of an adapter it is from."""
        told = self._request.admitted.headers + self._request.notice.headers
        adapter = self.adapter
        return told if adapter is None else (*told, ("x-penstock-adapter", adapter))

    @property
    def adapter(self) -> str | None:
        """Return the adapter and its version, as `acme/support@3`."""
        envelope = self._request.envelope
        if not envelope.adapter_name:
            return None
        return f"{envelope.adapter_name}@{envelope.adapter_version}"

    async def next(self, write: Write | None = None) -> Progress:
        """Return new output, the end, or neither after a long silence. Output after the first may
        go to `write` instead, which sends it at once and returns True, or does neither. Raises an
        `InferenceError` if the request failed, with its HTTP status for an answer that has not
        begun."""
        progress = await self._request.stream.next(write if self._is_ttft_seen else None)
        if progress.chunks and not self._is_ttft_seen:
            self._is_ttft_seen = True
            metrics.first_output(
                self._request.envelope, time.monotonic() - self._request.started_at
            )
        return progress

    def wake_if_queued(self, after_seconds: float) -> asyncio.TimerHandle | None:
        """Have `next` return with neither output nor end after so long, where no worker took the
        request at once; return what cancels that, or None where one did."""
        if self._request.is_assigned:
            return None
        loop = asyncio.get_running_loop()
        return loop.call_later(after_seconds, self._request.stream.note_silence)

    async def result(self) -> Terminal:
        """Return the end of a request that does not stream."""
        while True:
            progress = await self._request.stream.next()
            if progress.end is not None:
                return progress.end

    def cancel(self) -> None:
        """Ask for the end: the client is gone, or wants it. Returns at once; does nothing after
        the end."""
        self._cancellations.cancel(self._request)

    def refuse(self, error: InferenceError) -> None:
        """End what its caller may not go on with: the reader gets this error after what has been
        generated."""
        self._cancellations.refuse(self._request, error)
