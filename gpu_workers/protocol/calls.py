"""What the dispatch functions take of a request, in the order in which dispatch.lua reads it."""

from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Envelope


def enqueue_arguments(
    envelope: Envelope, *, max_queue_length: int, attempts: int = 0
) -> tuple[str | bytes | int, ...]:
    """Of `enqueue`. `attempts`: how many the request had in a Redis that has lost it."""
    return (
        envelope.request_id,
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
        envelope.on_saturation,
        int(envelope.is_resumable),
        envelope.adapter,
        attempts,
        encode(envelope),
        max_queue_length,
    )


def adoption_arguments(envelope: Envelope, attempt: int) -> tuple[str, bytes]:
    """Of `adopt`, for one request: its line and its envelope."""
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
        envelope.adapter,
    )
    return " ".join(map(str, words)), encode(envelope)


def _output_bound(envelope: Envelope) -> int:
    return envelope.output_bound or envelope.max_output_tokens
