"""The dispatch functions' arguments for a request, in the order in which dispatch.lua reads
them."""

from typing import Final, Literal

from gpu_workers.protocol.codec import encode, owed_end
from gpu_workers.protocol.messages import Envelope, RetryReason
from gpu_workers.protocol.usage import UsageEntry

FinishMode = Literal["", "lost", "ask"]

# More than any pool holds: nothing is refused.
UNBOUNDED_BYTES: Final = 1 << 50


def enqueue_arguments(
    envelope: Envelope,
    *,
    max_queue_length: int,
    max_payload_bytes: int = UNBOUNDED_BYTES,
    attempts: int = 0,
    owed_proof: bytes = b"",
    max_load_ms: int = 0,
) -> tuple[str | bytes | int, ...]:
    """Return the arguments of `enqueue`. `max_payload_bytes`: what the pool may hold of payloads;
    `attempts`: those made before Redis lost the request; `owed_proof`: as of `Dispatch.enqueue`,
    of as many bytes as the envelope's own; `max_load_ms`: of its tenant's loads of adapters in a
    minute, 0 for any."""
    return (
        envelope.request_id,
        *_for_the_scheduler(envelope),
        envelope.on_saturation,
        int(envelope.is_resumable),
        envelope.adapter,
        attempts,
        len(envelope.resumed_token_ids),
        encode(envelope),
        max_queue_length,
        envelope.sequences,
        max_payload_bytes,
        owed_end(owed_proof) if owed_proof else b"",
        max_load_ms,
    )


def adoption_arguments(envelope: Envelope, attempt: int) -> tuple[str, bytes]:
    """Return the arguments of `adopt` for one request: its line and its envelope."""
    words = (
        envelope.request_id,
        attempt,
        *_for_the_scheduler(envelope),
        int(envelope.is_resumable),
        len(envelope.resumed_token_ids),
        envelope.sequences,
        envelope.adapter,
    )
    return " ".join(map(str, words)), encode(envelope)


def requeue_arguments(
    request_id: str, attempt: int, reason: RetryReason, envelope: Envelope | None
) -> tuple[str | bytes | int, ...]:
    """Return the arguments of `requeue`. With `envelope` None, the stored one stays."""
    if envelope is None:
        return request_id, attempt, reason, b"", 0
    return request_id, attempt, reason, encode(envelope), len(envelope.resumed_token_ids)


def finish_arguments(
    entry: UsageEntry,
    *,
    is_dead_letter: bool = False,
    origin: str = "",
    mode: FinishMode = "",
    last_frames: bytes = b"",
) -> tuple[str | bytes | int, ...]:
    """Return the arguments of `finish`. `origin`: where the worker keeps the record, as `<outbox
    id> <sequence number>`. Mode `lost` also records a request that Redis has lost; `ask` changes
    nothing. `last_frames`: an encoded `FrameBatch`, kept until its gateway has read it."""
    return (
        entry.request_id,
        entry.attempt,
        encode(entry),
        entry.usage.prompt_tokens,
        entry.usage.completion_tokens + entry.wasted_tokens,
        int(is_dead_letter),
        origin,
        mode,
        # Functions of an earlier version would take it for the time.
        *((last_frames,) if last_frames else ()),
    )


def _for_the_scheduler(envelope: Envelope) -> tuple[str | int, ...]:
    """Return whose the request is, its bounds in tokens, its gateway and how long it may wait."""
    return (
        envelope.service_class,
        envelope.tenant_id,
        envelope.project_id,
        envelope.api_key_id,
        envelope.weight,
        envelope.prompt_bound,
        envelope.output_bound or envelope.max_output_tokens,
        envelope.gateway_id,
        envelope.arrived_at_ms,
        envelope.ttft_target_ms,
        envelope.max_wait_ms,
    )
