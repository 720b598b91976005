"""One request under way at a worker: what it has sent, and the record of how it ended."""

import asyncio
import time
from dataclasses import dataclass, field, replace

from msgspec import structs

from gpu_workers.engine import Output, Result
from gpu_workers.protocol.messages import (
    Delta,
    Envelope,
    Outcome,
    RetryReason,
    Terminal,
    TokenUsage,
    UsageEntry,
    WireError,
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def failure(status: int, message: str, code: str) -> WireError:
    return WireError(status=status, message=message, type="server_error", code=code)


@dataclass(kw_only=True, slots=True)
class OpenRequest:
    """The worker's side of one attempt. Times are Unix milliseconds."""

    envelope: Envelope
    attempt: int
    received_at_ms: int = field(default_factory=now_ms)
    first_token_at_ms: int | None = None
    last_token_at_ms: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    is_aborted: bool = False
    # Its client, or its gateway, has no use for it any more
    is_unwanted: bool = False
    # It makes room for another; whoever gets it next goes on from here
    is_preempted: bool = False
    # Another worker has it by now: nobody is told of its end
    is_disowned: bool = False
    # Why the worker itself ended it, where the client had no part in that
    stopped_by_worker: WireError | None = None
    # All that its gateway has been sent, if it is one that can go on elsewhere
    token_ids: list[int] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None
    _seq: int = 0

    def delta(self, output: Output) -> Delta:
        """The next frame. Hot path: no logging, no metrics, no await."""
        if self.envelope.is_resumable and output.completion_tokens > len(self.token_ids):
            self.token_ids += output.token_ids  # what it goes on from is known already
        self.completion_tokens = output.completion_tokens
        self.prompt_tokens = output.prompt_tokens or self.prompt_tokens
        self.last_token_at_ms = time.time_ns() // 1_000_000
        if self.first_token_at_ms is None and output.completion_tokens:
            self.first_token_at_ms = self.last_token_at_ms
        seq = self._seq
        self._seq = seq + 1
        return Delta(
            request_id=self.envelope.request_id,
            attempt=self.attempt,
            seq=seq,
            chunks=output.chunks,
            completion_tokens=output.completion_tokens,
            token_ids=output.token_ids,
            prompt_tokens=0 if seq else output.prompt_tokens,
        )

    def judged(self, result: Result) -> Result:
        """The engine's result, or the worker's own where it was the worker that aborted."""
        if self.first_token_at_ms is None:
            self.first_token_at_ms = result.first_token_at_ms
        if self.stopped_by_worker is None or result.outcome is not Outcome.CANCELLED:
            return result
        return replace(result, outcome=Outcome.FAILED, error=self.stopped_by_worker)

    def reason_to_retry(self, result: Result) -> RetryReason | None:
        """Why another attempt takes the place of this one's end, None if that is final."""
        if not self._can_be_tried_again():
            return None
        if result.outcome is Outcome.FAILED and self.stopped_by_worker is not None:
            return "worker_lost"
        if result.outcome is Outcome.CANCELLED and self.is_preempted:
            return "preempted"
        return None

    def resumption(self, result: Result) -> Envelope | None:
        """The envelope to go on with; None where there is nothing to go on from."""
        # What a stream has generated and not sent would come in one piece with what was sent.
        token_ids = self.token_ids if self.envelope.stream else result.token_ids
        if not self.envelope.is_resumable or not token_ids:
            return None
        return structs.replace(self.envelope, resumed_token_ids=token_ids)

    def _can_be_tried_again(self) -> bool:
        """Whether its client would not notice: it has no output, or another worker can go on."""
        envelope = self.envelope
        is_unseen = not envelope.stream or not self.completion_tokens
        return not self.is_unwanted and (is_unseen or envelope.is_resumable)

    def failed(self, error: WireError, usage: TokenUsage | None = None) -> Result:
        """A result for a request whose engine can give none."""
        return Result(
            outcome=Outcome.FAILED,
            usage=usage or TokenUsage(completion_tokens=self.completion_tokens),
            error=error,
        )

    def terminal(self, result: Result) -> Terminal:
        return Terminal(
            request_id=self.envelope.request_id,
            attempt=self.attempt,
            seq=self._seq,
            outcome=result.outcome,
            usage=result.usage,
            finish_reason=result.finish_reason,
            body=result.body,
            error=result.error,
        )

    def usage_entry(self, result: Result, worker_id: str) -> UsageEntry:
        envelope, arrived = self.envelope, self.envelope.arrived_at_ms
        first = self.first_token_at_ms
        return UsageEntry(
            request_id=envelope.request_id,
            tenant_id=envelope.tenant_id,
            project_id=envelope.project_id,
            api_key_id=envelope.api_key_id,
            tier=envelope.tier,
            pool=envelope.pool,
            model=envelope.model,
            api=envelope.api,
            stream=envelope.stream,
            attempt=self.attempt,
            worker_id=worker_id,
            outcome=result.outcome,
            finish_reason=result.finish_reason,
            error_code=result.error.code if result.error else None,
            usage=result.usage,
            arrived_at_ms=arrived,
            finished_at_ms=now_ms(),
            queue_ms=max(0, self.received_at_ms - arrived),
            ttft_ms=None if first is None else max(0, first - arrived),
            is_billed=envelope.is_billed,
            service_class=envelope.service_class,
            adapter=envelope.adapter,
            prices=envelope.prices,
        )

    def seconds_per_token(self) -> float | None:
        """Mean time between tokens; None without two of them."""
        if self.first_token_at_ms is None or self.last_token_at_ms is None:
            return None
        if self.completion_tokens < 2:
            return None
        return (self.last_token_at_ms - self.first_token_at_ms) / (self.completion_tokens - 1) / 1e3
