"""One request under way at a worker: what it has sent, and what is reported of its end."""

import asyncio
import time
from dataclasses import dataclass, field, replace

from msgspec import structs

from gpu_workers.engine import Output, Result
from gpu_workers.protocol.clock import now_ms
from gpu_workers.protocol.messages import (
    Delta,
    Envelope,
    Outcome,
    RetryReason,
    Terminal,
    TextDelta,
    TokenUsage,
    WasteReason,
    WireError,
)
from gpu_workers.protocol.usage import UsageEntry
from gpu_workers.requests.inter_token_latency import InterTokenLatency


def failure(status: int, message: str, code: str) -> WireError:
    return WireError(status=status, message=message, type="server_error", code=code)


@dataclass(kw_only=True, slots=True)
class OpenRequest:
    """The worker's side of one attempt. `_ns` are times of `time.monotonic_ns`, `_ms` of the shared
    clock, in Unix milliseconds: read once, when the request came, and counted on from there."""

    envelope: Envelope
    attempt: int
    received_at_ms: int = field(default_factory=now_ms)
    received_ns: int = field(default_factory=time.monotonic_ns)
    first_token_ns: int | None = None
    last_token_ns: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    inter_token_latency: InterTokenLatency = field(default_factory=InterTokenLatency)
    # Its end is on record, or another attempt follows
    is_ended: bool = False
    # The engine has been asked to end it, for whatever reason
    is_aborted: bool = False
    # Its client has left or cancelled, or its gateway is gone
    is_cancelled: bool = False
    # What a stream had got by then
    tokens_at_cancellation: int | None = None
    # It makes room for another; whoever gets it next resumes from here
    is_preempted: bool = False
    # The worker could get no adapter for it, nor for others
    is_without_adapters: bool = False
    # Another worker has it by now: its end is reported to nobody
    is_disowned: bool = False
    # Why the worker itself ended it, where the client had no part in that
    stopped_by_worker: WireError | None = None
    # All that its gateway has been sent, if it can be resumed elsewhere
    token_ids: list[int] = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None
    # Done once it is aborted, for as long as it waits for its adapter
    aborted: "asyncio.Future[None] | None" = None
    # Of its `TextDelta`s, until the first has said it
    form: tuple[bytes, bytes] | None = None
    _seq: int = 0

    def delta(self, output: Output) -> Delta:
        """Make the next frame. Hot path: no logging, no metrics, no await."""
        self.prompt_tokens = output.prompt_tokens or self.prompt_tokens
        self.cached_tokens = output.cached_tokens or self.cached_tokens
        self._count(output.completion_tokens, output.token_ids)
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
            cached_tokens=0 if seq else output.cached_tokens,
        )

    def text_delta(self, text: str, completion_tokens: int, token_ids: list[int]) -> TextDelta:
        """Make the next frame of a text. The hottest path."""
        self._count(completion_tokens, token_ids)
        seq, form = self._seq, self.form
        self._seq, self.form = seq + 1, None
        return TextDelta(
            request_id=self.envelope.request_id,
            attempt=self.attempt,
            seq=seq,
            text=text,
            completion_tokens=completion_tokens,
            token_ids=token_ids,
            form=form,
        )

    def mark_cancelled(self) -> None:
        """Note that its client or gateway has gone, and what a stream had delivered by then."""
        self.is_cancelled = True
        if self.tokens_at_cancellation is None and self.envelope.stream:
            self.tokens_at_cancellation = self.completion_tokens

    def final_result(self, result: Result) -> Result:
        """Return the engine's result, or the worker's own if it was the worker that aborted. A
        client that has left does not pay for what was generated afterwards."""
        if self.first_token_ns is None:
            self.first_token_ns = result.first_token_ns
        if result.outcome is not Outcome.CANCELLED:
            return result
        if self.stopped_by_worker is not None:
            return replace(result, outcome=Outcome.FAILED, error=self.stopped_by_worker)
        generated = result.usage.completion_tokens
        if self.tokens_at_cancellation is None or generated <= self.tokens_at_cancellation:
            return result
        usage = structs.replace(result.usage, completion_tokens=self.tokens_at_cancellation)
        return replace(result, usage=usage, wasted_tokens=generated - usage.completion_tokens)

    def retry_reason(self, result: Result) -> RetryReason | None:
        """Return why another attempt should follow this one; None if its result is final."""
        if not self._can_be_retried():
            return None
        if result.outcome is Outcome.FAILED and self.stopped_by_worker is not None:
            return "worker_lost"
        if self.is_without_adapters:
            return "adapters_unavailable"
        if result.outcome is Outcome.CANCELLED and self.is_preempted:
            return "preempted"
        return None

    def resumption(self, result: Result) -> Envelope | None:
        """Return the envelope of the next attempt; None where it has nothing to resume from."""
        # What a stream has generated and not sent would come in one piece with what was sent.
        token_ids = self.token_ids if self.envelope.stream else result.token_ids
        if not self.envelope.is_resumable or not token_ids:
            return None
        return structs.replace(self.envelope, resumed_token_ids=token_ids)

    @property
    def resumed(self) -> int:
        """Return how many tokens this attempt resumed from."""
        return len(self.envelope.resumed_token_ids)

    def failed(self, error: WireError, usage: TokenUsage | None = None) -> Result:
        """Make a result for a request whose engine can give none."""
        return Result(
            outcome=Outcome.FAILED,
            usage=usage
            or TokenUsage(
                prompt_tokens=self.prompt_tokens,
                cached_tokens=self.cached_tokens,
                completion_tokens=self.completion_tokens,
            ),
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
        first = None if self.first_token_ns is None else self._at_ms(self.first_token_ns)
        counted = result.usage.completion_tokens + result.wasted_tokens
        # An attempt that ended before it resumed counts nothing: its predecessors' are left.
        left = max(0, self.resumed - counted)
        reason = WasteReason.AFTER_CANCEL if result.wasted_tokens else ""
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
            finished_at_ms=self._at_ms(time.monotonic_ns()),
            queue_ms=max(0, self.received_at_ms - arrived),
            ttft_ms=None if first is None else max(0, first - arrived),
            is_billed=envelope.is_billed,
            service_class=envelope.service_class,
            adapter=envelope.adapter_name,
            adapter_version=envelope.adapter_version,
            labels=envelope.labels,
            prices=envelope.prices,
            itl_p50_ms=self.inter_token_latency.quantile_ms(0.5),
            itl_p95_ms=self.inter_token_latency.quantile_ms(0.95),
            wasted_tokens=result.wasted_tokens + left,
            waste_reason=WasteReason.NOT_RESUMED if left else reason,
            generated_tokens=max(0, counted - self.resumed),
            prompt_bound=envelope.prompt_bound,
            output_bound=envelope.output_bound,
            owed=envelope.owed,
            proof=envelope.proof,
        )

    def seconds_per_token(self) -> float | None:
        """Return the mean time between tokens; None without two of them."""
        if self.first_token_ns is None or not self.last_token_ns or self.completion_tokens < 2:
            return None
        return (self.last_token_ns - self.first_token_ns) / (self.completion_tokens - 1) / 1e9

    def _at_ms(self, monotonic_ns: int) -> int:
        return self.received_at_ms + (monotonic_ns - self.received_ns) // 1_000_000

    def _count(self, completion_tokens: int, token_ids: list[int]) -> None:
        if self.envelope.is_resumable and completion_tokens > len(self.token_ids):
            self.token_ids += token_ids  # what it resumes from is known already
        if completion_tokens > self.completion_tokens:
            now_ns = time.monotonic_ns()
            self.completion_tokens = completion_tokens
            if self.first_token_ns is None:
                self.first_token_ns = now_ns
            else:
                self.inter_token_latency.add(now_ns - self.last_token_ns)
            self.last_token_ns = now_ns

    def _can_be_retried(self) -> bool:
        """Tell whether the client would not notice: no output yet, or another worker can resume."""
        envelope = self.envelope
        is_unseen = not envelope.stream or not self.completion_tokens
        return not self.is_cancelled and (is_unseen or envelope.is_resumable)
