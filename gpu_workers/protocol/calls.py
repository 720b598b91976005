"""The dispatch functions' arguments for a request, as the functions read them."""

from typing import Final, Literal

import msgspec

from gpu_workers.protocol.codec import encode, owed_end
from gpu_workers.protocol.messages import Envelope, RetryReason
from gpu_workers.protocol.usage import UsageEntry

FinishMode = Literal["", "lost", "ask"]

# More than any pool holds: nothing is refused.
UNBOUNDED_BYTES: Final = 1 << 50


class EnqueueOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What `enqueue` is asked, beside what is bytes; a map, so that each has its name in Lua too.

    `attempts`: how many the request had in a Redis that has lost it; `resumed`: tokens that its
    envelope goes on from; `on_saturation`: wait or refuse; `sequences`: how many it decodes at a
    time; `max_load_ms`: for how long loads of its tenant's adapters may hold engines up in a
    minute, 0 for any time; bounds are in tokens, `max_payload_bytes` is of the pool.
    """

    request_id: str
    service_class: str
    tenant: str
    project: str
    key: str
    weight: int
    prompt_bound: int
    output_bound: int
    gateway: str
    arrived_at_ms: int
    ttft_target_ms: int
    max_wait_ms: int
    on_saturation: str
    is_resumable: bool
    adapter: str
    attempts: int
    resumed: int
    max_queue_length: int
    sequences: int
    max_payload_bytes: int
    max_load_ms: int


def enqueue_arguments(
    envelope: Envelope,
    *,
    max_queue_length: int,
    max_payload_bytes: int = UNBOUNDED_BYTES,
    attempts: int = 0,
    owed_proof: bytes = b"",
    max_load_ms: int = 0,
) -> tuple[bytes, bytes, bytes]:
    """Return the arguments of `enqueue`: an `EnqueueOrder`, the envelope, and how that ends where
    the request is owed its promises, empty not to judge that. `owed_proof`: as of
    `Dispatch.enqueue`, of as many bytes as the envelope's own."""
    order = EnqueueOrder(
        request_id=envelope.request_id,
        service_class=envelope.service_class,
        tenant=envelope.tenant_id,
        project=envelope.project_id,
        key=envelope.api_key_id,
        weight=envelope.weight,
        prompt_bound=envelope.prompt_bound,
        output_bound=_output_bound(envelope),
        gateway=envelope.gateway_id,
        arrived_at_ms=envelope.arrived_at_ms,
        ttft_target_ms=envelope.ttft_target_ms,
        max_wait_ms=envelope.max_wait_ms,
        on_saturation=envelope.on_saturation,
        is_resumable=envelope.is_resumable,
        adapter=envelope.adapter,
        attempts=attempts,
        resumed=len(envelope.resumed_token_ids),
        max_queue_length=max_queue_length,
        sequences=envelope.sequences,
        max_payload_bytes=max_payload_bytes,
        max_load_ms=max_load_ms,
    )
    owed = owed_end(owed_proof) if owed_proof else b""
    return msgspec.msgpack.encode(order), encode(envelope), owed


def adoption_arguments(envelope: Envelope, attempt: int) -> tuple[str, bytes]:
    """Return the arguments of `adopt` for one request: its line and its envelope."""
    words = (
        envelope.request_id,
        attempt,
        envelope.service_class,
        envelope.tenant_id,
        envelope.project_id,
        envelope.api_key_id,
        envelope.weight,
        envelope.prompt_bound,
        _output_bound(envelope),
        envelope.gateway_id,
        envelope.arrived_at_ms,
        envelope.ttft_target_ms,
        envelope.max_wait_ms,
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


def _output_bound(envelope: Envelope) -> int:
    return envelope.output_bound or envelope.max_output_tokens
