"""One admitted request as its gateway holds it: what was asked and reserved, and how far it is."""

import time
from dataclasses import replace

from msgspec import structs

from gpu_workers.protocol.messages import Envelope, Terminal
from gpu_workers.protocol.policy import Caller
from inference.admission.gate import Admitted
from inference.charges import Charge, actual, worst_case
from inference.lifecycle.candidates import Candidate
from inference.lifecycle.saturation import Notice
from inference.lifecycle.signals.request_trace import RequestTrace
from inference.streaming.token_stream import TokenStream


class InflightRequest:
    """The state of a request from before it is queued until its end. It asks for nothing itself:
    whoever acts on it holds it, and it holds nobody."""

    def __init__(
        self, candidate: Candidate, caller: Caller, admitted: Admitted, stream: TokenStream
    ) -> None:
        self.envelope = candidate.envelope
        self.caller = caller
        self.admitted = admitted
        self.stream = stream
        self.notice = Notice()
        self.trace: RequestTrace | None = None
        self.is_enqueued = False
        self.is_assigned = False  # by the call that queued it
        self.is_cancelled = False
        self.is_open = True
        self.started_at = self.pinged_at = time.monotonic()
        self.missed_looks, self.missed_since = 0, 0.0  # for an end that does not come
        self.owed_proof = candidate.owed_proof
        self._bounds = candidate.bounds

    @property
    def request_id(self) -> str:
        return self.envelope.request_id

    @property
    def is_running(self) -> bool:
        """Return whether a worker has it, as far as is known here."""
        return self.is_assigned or self.stream.has_begun

    @property
    def has_one_prompt(self) -> bool:
        """Return whether the count of a prompt is that of the whole request."""
        return self._bounds.is_one_prompt

    def move(self, candidate: Candidate, stream: TokenStream) -> None:
        """Ask another pool for it, since the first one did not take it."""
        self.envelope, self._bounds = candidate.envelope, candidate.bounds
        self.owed_proof = candidate.owed_proof
        self.admitted = replace(self.admitted, prices=candidate.prices)
        self.stream = stream

    def note_owed(self) -> None:
        """Note that the queue has judged it to be owed what its tier promises."""
        self.envelope = structs.replace(self.envelope, owed=True, proof=self.owed_proof)

    def charge_of(self, terminal: Terminal) -> Charge:
        """Return what the request has cost, now that it has ended."""
        return actual(terminal.outcome, terminal.usage, self.admitted.prices)

    def trued_down(self) -> Charge:
        """Return the worst case, now that the worker has counted the prompt."""
        return worst_case(
            self.stream.prompt_tokens, self._bounds.output_tokens, self.admitted.prices
        )

    def resumption(self) -> Envelope | None:
        """Return the envelope with which another worker goes on from what has come; None if that is
        nothing."""
        token_ids = list(self.stream.token_ids)
        return structs.replace(self.envelope, resumed_token_ids=token_ids) if token_ids else None
