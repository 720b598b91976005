"""One admitted request, as its door sees it: output to read, an end to wait for or to ask for."""

import time
from dataclasses import replace
from typing import Protocol

from msgspec import structs
from prometheus_client import Histogram

from gpu_workers.protocol.messages import Envelope, Terminal
from gpu_workers.protocol.policy import Caller
from inference.admission.gate import Admitted
from inference.admission.limits import Headers
from inference.charges import Bounds, Charge, actual, worst_case
from inference.errors import InferenceError
from inference.lifecycle.candidates import Candidate
from inference.lifecycle.saturation import Notice
from inference.streaming.frame_hub import FrameHub
from inference.streaming.token_stream import Progress, TokenStream

TTFT = Histogram(
    "penstock_gateway_time_to_first_token_seconds",
    "From a request's arrival to its first output at the gateway.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
)


class Keeper(Protocol):
    """What a generation needs of the settlement that keeps it."""

    hub: FrameHub

    def cancel(self, generation: "Generation") -> None: ...

    def settle(self, generation: "Generation", terminal: Terminal) -> None: ...

    def true_down(self, generation: "Generation") -> None: ...

    def replace_worker(self, generation: "Generation") -> None: ...


class Generation:
    """One admitted request, as its door sees it."""

    def __init__(
        self,
        settlement: Keeper,
        envelope: Envelope,
        caller: Caller,
        admitted: Admitted,
        bounds: Bounds,
    ) -> None:
        self._settlement = settlement
        self._is_ttft_seen = False
        self.admitted = admitted
        self._bounds = bounds
        self.envelope = envelope
        self.caller = caller
        self.is_cancelled = False
        self.is_enqueued = False
        self.is_assigned = False  # by the call that queued it
        self.is_open = True
        self.started_at = self.pinged_at = time.monotonic()
        self.times_missing = 0
        self.notice = Notice()
        self.stream = self._open_stream()

    @property
    def request_id(self) -> str:
        return self.envelope.request_id

    @property
    def headers(self) -> Headers:
        """What an HTTP answer tells of the caller's limits, and of what it did not ask for."""
        return self.admitted.headers + self.notice.headers

    @property
    def is_running(self) -> bool:
        """Whether a worker has it, as far as is known here."""
        return self.is_assigned or self.stream.has_begun

    def move_to(self, candidate: Candidate) -> None:
        """Another pool is asked for it, since the first one did not take it."""
        self.envelope, self._bounds = candidate.envelope, candidate.bounds
        self.admitted = replace(self.admitted, prices=candidate.prices)
        self._settlement.hub.close(self.request_id)
        self.stream = self._open_stream()

    async def next(self) -> Progress:
        """New output, the end, or neither after a long silence. Raises an `InferenceError` if
        the request failed, with its HTTP status for an answer that has not begun."""
        progress = await self.stream.next()
        if progress.chunks and not self._is_ttft_seen:
            self._is_ttft_seen = True
            TTFT.observe(time.monotonic() - self.started_at)
        return progress

    async def result(self) -> Terminal:
        """The end of a request that does not stream."""
        while True:
            progress = await self.stream.next()
            if progress.end is not None:
                return progress.end

    def cancel(self) -> None:
        """The client is gone, or asks for the end. Returns at once; after the end, does nothing."""
        self._settlement.cancel(self)

    def refuse(self, error: InferenceError) -> None:
        """The caller may not go on: it gets this error after what has been generated."""
        self.stream.break_off(error)
        self.cancel()

    def charge_of(self, terminal: Terminal) -> Charge:
        """What the request has cost, now that it has ended."""
        return actual(terminal.outcome, terminal.usage, self.admitted.prices)

    def trued_down(self) -> Charge:
        """The worst case, now that the worker has counted the prompt."""
        return worst_case(
            self.stream.prompt_tokens, self._bounds.output_tokens, self.admitted.prices
        )

    def _open_stream(self) -> TokenStream:
        return self._settlement.hub.open(
            self.request_id,
            self._end,
            self._prompt_counted,
            pool=self.envelope.pool,
            on_unfilled=self._gap_unfilled,
            keeps_token_ids=self.envelope.stream and self.envelope.is_resumable,
        )

    def resumption(self) -> Envelope | None:
        """The envelope with which another worker goes on from what has come, None if that is
        nothing."""
        token_ids = list(self.stream.token_ids)
        return structs.replace(self.envelope, resumed_token_ids=token_ids) if token_ids else None

    def _end(self, terminal: Terminal) -> None:
        self._settlement.settle(self, terminal)

    def _gap_unfilled(self) -> None:
        self._settlement.replace_worker(self)

    def _prompt_counted(self) -> None:
        if self._bounds.is_one_prompt:
            self._settlement.true_down(self)
