"""What of a request counts for the promises of its tier, where the service owes it those. Workers,
gateways and the intake count by the same rule, which docs/sla.md tells to customers.

A tenant chooses what it sends and when it hangs up. So nothing that it chooses may make a request
miss a promise, and nothing that it does once it has seen the answer may take out one that kept it.
"""

from typing import Final

from gpu_workers.protocol.messages import Envelope, Outcome
from gpu_workers.protocol.usage import UsageEntry

# Of a longer prompt, what was cached aside, no time to first token is promised.
LONGEST_PROMPT_TOKENS: Final = 2_000
# Fewer have no 95th percentile of the gaps between them, but a longest one.
FEWEST_OUTPUT_TOKENS: Final = 21
# Failures of what the request brought with it, or did.
OWN_FAULTS: Final = (
    "adapter_refused",
    "attempts_exhausted",
    "slow_reader",
    "structure_impossible",
    "structure_too_costly",
)
_FAILED: Final = (Outcome.EXPIRED, Outcome.FAILED)
_UNANSWERED: Final = (Outcome.CANCELLED, *_FAILED)


def has_failed(outcome: str, error_code: str | None) -> bool:
    """Return whether the service did not serve a request that it had taken in."""
    return outcome in _FAILED and error_code not in OWN_FAULTS


def is_first_token_in_time(
    *,
    ttft_ms: float | None,
    waited_ms: float | None,
    target_ms: float,
    new_prompt_tokens: int,
    outcome: str,
    error_code: str | None,
) -> bool | None:
    """Return whether the first token came in time, None where none was promised or the client had
    not waited for long enough. `waited_ms`: from arrival to the end; `new_prompt_tokens`: those
    that were not cached."""
    if new_prompt_tokens > LONGEST_PROMPT_TOKENS:
        return None
    if ttft_ms is not None:
        return ttft_ms <= target_ms
    is_late = waited_ms is not None and waited_ms > target_ms
    if is_late and outcome in _UNANSWERED and error_code not in OWN_FAULTS:
        return False
    return None


def are_tokens_in_time(
    *, itl_p95_ms: float | None, target_ms: float, completion_tokens: int
) -> bool | None:
    """Return whether tokens followed one another in time, None where there was no second one. Of
    few tokens they did: else who stops each answer that goes well keeps those that do not."""
    if itl_p95_ms is None:
        return None
    return itl_p95_ms <= target_ms or completion_tokens < FEWEST_OUTPUT_TOKENS


def first_token_kept(entry: UsageEntry, envelope: Envelope) -> bool | None:
    """Return whether a request kept its tier's TTFT target, None where it was owed none or nothing
    tells. One that is not billed leaves no record, and is owed nothing."""
    if not (entry.owed and entry.is_billed and envelope.ttft_target_ms):
        return None
    return is_first_token_in_time(
        ttft_ms=entry.ttft_ms,
        waited_ms=entry.finished_at_ms - entry.arrived_at_ms,
        target_ms=envelope.ttft_target_ms,
        new_prompt_tokens=entry.usage.prompt_tokens - entry.usage.cached_tokens,
        outcome=entry.outcome,
        error_code=entry.error_code,
    )


def tokens_kept(entry: UsageEntry, envelope: Envelope) -> bool | None:
    """Return the same for the target of inter-token latency."""
    if not (entry.owed and entry.is_billed and envelope.inter_token_target_ms):
        return None
    return are_tokens_in_time(
        itl_p95_ms=entry.itl_p95_ms,
        target_ms=envelope.inter_token_target_ms,
        completion_tokens=entry.usage.completion_tokens,
    )
