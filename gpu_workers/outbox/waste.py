"""What an attempt generated that nobody pays for, as its entry in the usage stream."""

from gpu_workers.protocol.usage import UsageEntry, WasteEntry


def waste_entry(entry: UsageEntry, counted_elsewhere: int, reason: str) -> WasteEntry | None:
    """Return what an attempt that did not end its request has generated; None if that is nothing,
    or the request is not billed. `counted_elsewhere`: how many of its tokens another attempt
    resumes from or a record counts; all others are waste."""
    wasted = max(0, entry.usage.completion_tokens + entry.wasted_tokens - counted_elsewhere)
    if not entry.is_billed or not (wasted or entry.generated_tokens):
        return None
    return WasteEntry(
        request_id=entry.request_id,
        attempt=entry.attempt,
        tenant_id=entry.tenant_id,
        project_id=entry.project_id,
        api_key_id=entry.api_key_id,
        tier=entry.tier,
        pool=entry.pool,
        model=entry.model,
        adapter=entry.adapter,
        worker_id=entry.worker_id,
        completion_tokens=wasted,
        reason=reason,
        ended_at_ms=entry.finished_at_ms,
        generated_tokens=entry.generated_tokens,
        labels=entry.labels,
        output_bound=entry.output_bound,
        proof=entry.proof,
    )
